"""In which memory each tensor should live: kernels timed by placement, and the placement that costs least."""
