"""Is the household engine ALFWorld?  Walks played on the official engine and on ours, compared turn by turn."""
