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
