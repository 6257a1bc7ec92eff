"""The simulated world: machines, disks, networks and time in one process, decided by one seed."""
