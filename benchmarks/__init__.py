"""Speed and quality measurements for development. They are not tests; `make bench` runs the speed figures."""
