"""Power that is read over the network, by a process of its own: Redfish, and whatever comes besides."""
