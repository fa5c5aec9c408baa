"""What programs and notebooks call: ``memtui.open`` gives the tables of sessions."""
