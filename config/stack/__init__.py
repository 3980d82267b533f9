"""The whole product as one supervised group of processes on one machine."""
