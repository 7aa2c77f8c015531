//! What a join in pairs of partitions queues when: in the emulator, which does everything at once, the order in time is that.

use arrow::array::ArrayRef;
use arrow::datatypes::Int64Type;
use warpline::{DeviceChoice, profile};
use warpline_sql_tests::Fixture;

use crate::operators::support::{Nulls, drawn, primitive};

const ROWS: usize = 20_000;
/// Pairs of partitions are queued so many at a time before the host waits for any.
const AHEAD: usize = 8;

/// Something that a profile shows.
#[derive(Debug)]
struct Event {
    kind: String,
    name: String,
    track: String,
    start: f64,
}

/// The value of a field in the text of an object.
fn field<'t>(object: &'t str, name: &str) -> &'t str {
    let from = object.find(&format!("\"{name}\":")).expect("a field") + name.len() + 3;
    let value = &object[from..];
    let end = value.find([',', '}']).expect("an end");
    value[..end].trim_matches('"')
}

/// The events of a profile, by time.
fn events(json: &str) -> Vec<Event> {
    let objects = json.split("\"cat\":\"").skip(1);
    let mut events: Vec<Event> = objects
        .map(|object| Event {
            kind: object[..object.find('"').expect("an end")].to_string(),
            name: field(object, "name").to_string(),
            track: format!("{} {}", field(object, "pid"), field(object, "tid")),
            start: field(object, "ts").parse().expect("a number"),
        })
        .collect();
    events.sort_by(|a, b| a.start.total_cmp(&b.start));
    events
}

fn columns(keys: Vec<Option<i64>>) -> Vec<(&'static str, ArrayRef)> {
    let values = (0..keys.len() as i64).map(|row| Some(row * 7)).collect();
    vec![
        ("k", primitive::<Int64Type>(keys)),
        ("v", primitive::<Int64Type>(values)),
    ]
}

#[test]
fn the_next_pair_comes_before_this_one_is_joined_and_nobody_waits_for_it() {
    let settings = [
        ("warpline.device_memory", "262144"),
        ("warpline.join", "triton"),
        ("warpline.index_joins", "off"),
    ];
    let keys: Vec<i64> = (0..ROWS as i64).map(|i| i << 40 | i).collect();
    let fixture = Fixture::open(DeviceChoice::Emulator, true, &settings)
        .table("r", columns(keys.iter().copied().map(Some).collect()))
        .table("s", columns(drawn(&keys, ROWS, Nulls::None, 3)));
    let sql = "SELECT count(*) AS c, sum(r.v) AS a, sum(s.v) AS b FROM s JOIN r ON s.k = r.k";
    let run = fixture.check(sql);
    assert!(
        run.metrics.spilled_bytes > 0,
        "all of it stays on the device"
    );
    // The kernels are compiled by now.
    let taken = fixture
        .block_on(profile(fixture.session(), sql, 0))
        .expect("a profile");
    let events = events(&taken.to_json().expect("JSON"));
    let kernels = |name: &str| -> Vec<&Event> {
        let named = |event: &&Event| event.kind == "kernel" && event.name == name;
        events.iter().filter(named).collect()
    };
    let (copies, joins) = (kernels("copy_runs"), kernels("phj_join"));
    let pairs = joins.len();
    assert!(pairs >= 4, "{pairs} pairs");
    assert!(
        !copies.is_empty() && copies.len().is_multiple_of(pairs),
        "{} copies for {pairs} pairs",
        copies.len()
    );
    assert!(copies.iter().all(|copy| copy.track != joins[0].track));
    let of_a_pair = copies.len() / pairs;
    for (number, join) in joins.iter().enumerate() {
        assert_eq!(join.track, joins[0].track);
        let queued = copies.iter().filter(|copy| copy.start < join.start).count();
        let wanted = (number + 2).min(pairs) * of_a_pair;
        assert!(
            queued >= wanted,
            "{queued} of {wanted} copies before pair {number} of {pairs}"
        );
    }
    let between = joins[0].start..joins[pairs - 1].start;
    let waits = events
        .iter()
        .filter(|event| event.kind == "wait" && between.contains(&event.start));
    let waits = waits.count();
    assert!(waits <= pairs / AHEAD, "{waits} waits for {pairs} pairs");
}
