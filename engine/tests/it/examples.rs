//! The examples answer as DataFusion does, with and without a device.

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use warpline::DeviceChoice;

/// What `main` of each example does with the answers is not run here.
macro_rules! example {
    ($name:ident, $file:literal) => {
        #[allow(dead_code, unreachable_pub)]
        #[path = $file]
        mod $name;
    };
}

example!(
    beside_another_extension,
    "../../examples/beside_another_extension.rs"
);
example!(embed, "../../examples/embed.rs");
example!(metrics, "../../examples/metrics.rs");
example!(pin_tables, "../../examples/pin_tables.rs");

fn text(answer: &[RecordBatch]) -> String {
    pretty_format_batches(answer).expect("text").to_string()
}

fn texts(answers: &[Vec<RecordBatch>]) -> Vec<String> {
    answers.iter().map(|answer| text(answer)).collect()
}

#[tokio::test]
async fn embed_answers_alike() {
    let cpu = texts(&embed::run(DeviceChoice::Cpu).await.expect("the CPU"));
    let device = texts(&embed::run(DeviceChoice::Emulator).await.expect("a device"));
    assert!(!cpu[0].contains("GpuFragmentExec"), "{}", cpu[0]);
    assert!(device[0].contains("GpuFragmentExec"), "{}", device[0]);
    assert!(cpu[1].contains("| red    | 833316666"), "{}", cpu[1]);
    assert_eq!(cpu[1], device[1]);
}

#[tokio::test]
async fn pin_tables_answers_alike() {
    let cpu = texts(&pin_tables::run(DeviceChoice::Cpu).await.expect("the CPU"));
    let device = texts(
        &pin_tables::run(DeviceChoice::Emulator)
            .await
            .expect("a device"),
    );
    assert_eq!(cpu, device);
    assert_eq!(cpu[0], cpu[1]);
}

#[tokio::test]
async fn metrics_answers_alike() {
    let cpu = texts(&metrics::run(DeviceChoice::Cpu).await.expect("the CPU"));
    let device = texts(
        &metrics::run(DeviceChoice::Emulator)
            .await
            .expect("a device"),
    );
    assert_eq!(cpu, device);
}

#[tokio::test]
async fn beside_another_extension_answers_alike() {
    let run = beside_another_extension::run;
    let cpu = texts(&run(DeviceChoice::Cpu).await.expect("the CPU"));
    let device = texts(&run(DeviceChoice::Emulator).await.expect("a device"));
    let [plan, answer, function_plan, function_answer] = device.as_slice() else {
        panic!("{} answers", device.len());
    };
    assert_eq!((&cpu[1], &cpu[3]), (answer, function_answer));
    assert!(answer.lines().count() > 40, "{answer}");
    // The extension's rows feed the device.
    assert!(plan.contains("GpuFragmentExec"), "{plan}");
    assert!(plan.contains("cpu=[]"), "{plan}");
    // Its function does not run there.
    assert!(
        !function_plan.contains("GpuFragmentExec"),
        "{function_plan}"
    );
    assert!(
        function_plan.contains("the function fahrenheit"),
        "{function_plan}"
    );
}
