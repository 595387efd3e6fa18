//! The session actor: leases, turns, heartbeat, reaper, sweeper
