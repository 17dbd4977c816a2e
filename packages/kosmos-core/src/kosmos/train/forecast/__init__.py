"""What a run comes to, told before anything is trained or allocated: parts, memory, rows, operations, time.

``whole.forecast`` puts it together; ``kosmos plan`` prints it. Nothing here joins a process group, takes memory for
weights of a backbone or decodes a medium.
"""
