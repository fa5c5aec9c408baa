"""A rank of a training by torchrun: each has a DataLoader with a worker, and their gradients are added up over gloo."""

import hashlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rows = TensorDataset(torch.randn(1600, 512, generator=torch.Generator().manual_seed(rank)))
    batches = DataLoader(rows, 32, num_workers=1, persistent_workers=True)
    for epoch in range(int(sys.argv[1])):
        for (batch,) in batches:
            optimizer.zero_grad(set_to_none=False)
            nn.functional.mse_loss(model(batch), batch).backward()
            optimizer.step()
            if rank == 0:
                print("step", epoch, "at", time.monotonic_ns(), file=sys.stderr, flush=True)
    if rank == 0:
        digest = hashlib.sha256()
        for parameter in model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        print(digest.hexdigest())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
