//! The system's memory sizes.

/// Bytes by their name in `/proc/meminfo`, such as `MemTotal`, if the system has that file and says so.
pub(crate) fn memory_of_machine(name: &str) -> Option<usize> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    info.lines().find_map(|line| {
        let kilobytes = line.strip_prefix(name)?.strip_prefix(':')?;
        let kilobytes: usize = kilobytes.strip_suffix("kB")?.trim().parse().ok()?;
        kilobytes.checked_mul(1024)
    })
}

/// What to reckon with where the system does not say.
const UNKNOWN: usize = 8 << 30;

/// Bytes of the memory of this machine, or of what its control group may use.
pub fn memory_of_host() -> usize {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let total = memory_of_machine("MemTotal");
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| number(&text));
    total.into_iter().chain(limit).min().unwrap_or(UNKNOWN)
}
