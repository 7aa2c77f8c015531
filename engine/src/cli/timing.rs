//! `\timing`: one line with the device that answered and where the time went.

use warpline::{ByteSize, QueryMetrics};

/// The device that answered, or what the CPU did of it, and the times that are worth naming.
pub(super) fn line(device: &str, metrics: &QueryMetrics) -> String {
    let mut parts = vec![match metrics.plan_cached {
        true => format!("plan {:.2} ms (kept)", metrics.plan_ms),
        false => format!("plan {:.2} ms", metrics.plan_ms),
    }];
    let times = [("load", metrics.load_ms), ("compile", metrics.compile_ms)];
    // What takes less than this was there already.
    for (name, ms) in times.into_iter().filter(|(_, ms)| *ms >= 0.5) {
        parts.push(format!("{name} {ms:.1} ms"));
    }
    let Some(bytes) = metrics.bytes else {
        let why = match metrics.fallbacks.first() {
            Some(reason) => format!("Answered on the CPU, since {reason}"),
            None if metrics.cpu_answers > 0 => {
                format!("Answered on the CPU, which was ahead of {device}")
            }
            None => "Answered on the CPU".to_string(),
        };
        return format!("{why}: {}.", parts.join(", "));
    };
    parts.push(format!(
        "{} kernels {:.2} ms",
        metrics.kernels, metrics.kernel_ms
    ));
    let mut read = format!("{} read", size(bytes));
    if metrics.kernel_ms > 0.0 {
        read.push_str(&format!(
            " at {}",
            rate(bytes as f64 / metrics.kernel_ms / 1e3)
        ));
    }
    parts.push(read);
    for (bytes, what) in [
        (metrics.streamed_bytes, "streamed"),
        (metrics.spilled_bytes, "spilled"),
    ] {
        if bytes > 0 {
            parts.push(format!("{} {what}", size(bytes)));
        }
    }
    let by = match metrics.fallbacks.as_slice() {
        [] if metrics.cpu_answers > 0 => {
            format!("Answered on {device} and on the CPU, which was ahead with a part")
        }
        [] => format!("Answered on {device}"),
        [reason] => format!("Answered on {device} and the CPU ({reason})"),
        [reason, rest @ ..] => format!(
            "Answered on {device} and the CPU ({reason}, and {} more; EXPLAIN lists them)",
            rest.len()
        ),
    };
    format!("{by}: {}.", parts.join(", "))
}

/// A bandwidth from megabytes a second, which is what little data and the emulator come to.
fn rate(mb_per_s: f64) -> String {
    match mb_per_s {
        mb if mb < 1e3 => format!("{mb:.1} MB/s"),
        mb => format!("{:.0} GB/s", mb / 1e3),
    }
}

fn size(bytes: u64) -> String {
    ByteSize(usize::try_from(bytes).unwrap_or(usize::MAX)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_who_answered() {
        let mut metrics = QueryMetrics {
            plan_ms: 0.034,
            plan_cached: true,
            kernel_ms: 2.0,
            kernels: 5,
            bytes: Some(4_000_000_000),
            ..QueryMetrics::default()
        };
        assert_eq!(
            line("H200", &metrics),
            "Answered on H200: plan 0.03 ms (kept), 5 kernels 2.00 ms, 3.7 GiB read at 2000 GB/s."
        );
        metrics.bytes = Some(176 << 10);
        let text = line("emulator", &metrics);
        assert!(text.ends_with("176.0 KiB read at 90.1 MB/s."), "{text}");
        metrics.load_ms = 12.0;
        metrics.fallbacks = vec!["SortExec: it is small".into()];
        let text = line("H200", &metrics);
        assert!(
            text.contains("load 12.0 ms") && text.contains("and the CPU (SortExec"),
            "{text}"
        );
        let fallbacks = std::mem::take(&mut metrics.fallbacks);
        metrics.cpu_answers = 1;
        let text = line("H200", &metrics);
        assert!(text.contains("ahead with a part"), "{text}");
        metrics.bytes = None;
        let text = line("H200", &metrics);
        assert!(
            text.starts_with("Answered on the CPU, which was ahead of H200: "),
            "{text}"
        );
        metrics.fallbacks = fallbacks;
        let text = line("H200", &metrics);
        assert!(
            text.starts_with("Answered on the CPU, since SortExec"),
            "{text}"
        );
    }
}
