def kill_at_random(times: int) -> int: return 0
