"""The path of the data: document -> plan -> lane -> pack -> batch. Knows no model."""
