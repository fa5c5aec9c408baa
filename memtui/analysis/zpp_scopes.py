"""What the paths of operations begin with in the text of ZPP-MEM, by phase of the training step."""

SCOPES = {"forward": "forward/", "backward": "gradients/", "optimiser": "optimizer/"}
