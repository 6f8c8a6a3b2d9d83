"""The end-to-end harness: runs every test program under every vendor, alone and through `gridmpi run`."""
