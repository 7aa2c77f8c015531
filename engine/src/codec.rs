//! Serialisation of plans with device fragments, for engines that send plans to other machines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::proto_decode::PhysicalExprDecodeCtx;
use datafusion::physical_expr_common::physical_expr::proto_encode::PhysicalExprEncodeCtx;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{
    DefaultPhysicalExtensionCodec, PhysicalExtensionCodec, PhysicalPlanDecodeContext,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::PhysicalPlanNode;
use prost::Message;
use warpline_gpu::exec::{GivesWayExec, GpuFragmentExec, TimeLimitExec};
use warpline_gpu::tables::InputExec;
use warpline_planner::decorrelate::{LAST_KNOWN, ONE_ROW, last_known, one_row};
use warpline_planner::interval_product::{self, interval_product};
use warpline_planner::{CpuOperator, PlacementReportExec, WarplineConfig};
use warpline_planner::{ordered_set, statements, structs};

use crate::device::Device;
use crate::lossy::lost_in_encoding;

/// Writes plans with Warpline's nodes as protobuf messages of `datafusion-proto`, and reads them on another session, which may
/// have another device or none.
///
/// A fragment travels as the CPU plan that it replaces and the plans of its inputs, with the settings under `warpline.*` that belong to a query.
/// The receiver places it again on its own device; without one, the CPU runs the plan. Settings of machine and
/// session (`warpline.device`, `warpline.device_memory` …) stay where they are.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use datafusion::prelude::SessionContext;
/// use datafusion_proto::bytes::{
///     physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
/// };
/// use warpline::{Device, DeviceChoice, WarplineCodec, WarplineExt};
///
/// let device = Device::open(DeviceChoice::Auto, None)?;
/// let context = SessionContext::new().with_warpline(&device);
/// let plan = context.sql("SELECT 1 + 1 AS two").await?.create_physical_plan().await?;
/// let bytes = physical_plan_to_bytes_with_extension_codec(plan, &WarplineCodec::new(&device))?;
///
/// // On another machine, with its own device and session:
/// let codec = WarplineCodec::new(&device);
/// let plan = physical_plan_from_bytes_with_extension_codec(&bytes, &context.task_ctx(), &codec)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct WarplineCodec {
    device: Device,
    others: Arc<dyn PhysicalExtensionCodec>,
    /// The inputs of the fragment whose CPU plan is being read.
    inputs: Vec<Arc<dyn ExecutionPlan>>,
}

impl WarplineCodec {
    /// A codec that places the fragments that it reads on `device`.
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            others: Arc::new(DefaultPhysicalExtensionCodec {}),
            inputs: Vec::new(),
        }
    }

    /// The same with the codec of other extensions for their nodes, functions and expressions, also those inside
    /// fragments. Both sides must have it.
    #[must_use]
    pub fn with_codec(self, others: Arc<dyn PhysicalExtensionCodec>) -> Self {
        Self { others, ..self }
    }

    fn fragment(
        &self,
        fragment: Fragment,
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let original = PhysicalPlanNode::decode(fragment.original.as_slice()).map_err(damaged)?;
        let codec = Self {
            device: self.device.clone(),
            others: Arc::clone(&self.others),
            inputs: inputs.to_vec(),
        };
        let decode = PhysicalPlanDecodeContext::new(context, &codec);
        let original = converter.proto_to_execution_plan(&original, &decode)?;
        let settings = fragment.settings.iter();
        let settings = settings.map(|(name, value)| (name.as_str(), value.as_str()));
        let config = WarplineConfig::of(context.session_config().options()).with_query(settings)?;
        self.device
            .placement()
            .place_received(original, inputs, &config, fragment.tail)
    }

    fn report(&self, report: Report, input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let placement = self.device.placement();
        let Some(device) = placement.device() else {
            return Arc::clone(input);
        };
        let operators = report.operators.into_iter().map(|operator| CpuOperator {
            operator: operator.name,
            reason: operator.reason,
            count: operator.count as usize,
            fallback: operator.fallback,
        });
        let input = Arc::clone(input);
        Arc::new(PlacementReportExec::new(
            input,
            device.to_string(),
            operators.collect(),
        ))
    }
}

/// A node of Warpline, or of another extension in its own codec's encoding.
#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Fragment(Fragment),
    #[prost(message, tag = "2")]
    Report(Report),
    /// In milliseconds.
    #[prost(uint64, tag = "3")]
    TimeLimit(u64),
    #[prost(bytes, tag = "4")]
    Other(Vec<u8>),
    /// In a fragment's CPU plan: which of the fragment's inputs, and about how many rows it has.
    #[prost(message, tag = "5")]
    Input(Input),
    #[prost(message, tag = "6")]
    GivesWay(()),
}

#[derive(Clone, PartialEq, Message)]
struct Fragment {
    /// A message of its own, since protobuf limits the depth of nesting.
    #[prost(bytes = "vec", tag = "1")]
    original: Vec<u8>,
    #[prost(btree_map = "string, string", tag = "2")]
    settings: BTreeMap<String, String>,
    #[prost(string, optional, tag = "3")]
    tail: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Input {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(uint64, optional, tag = "2")]
    rows: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Report {
    #[prost(message, repeated, tag = "1")]
    operators: Vec<Operator>,
}

#[derive(Clone, PartialEq, Message)]
struct Operator {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    reason: String,
    #[prost(uint64, tag = "3")]
    count: u64,
    #[prost(bool, tag = "4")]
    fallback: bool,
}

fn damaged(error: prost::DecodeError) -> DataFusionError {
    DataFusionError::Plan(format!(
        "the bytes of a plan are damaged, or were written with another codec: {error}"
    ))
}

/// Refuses a plan that another machine would read as another one.
fn check_encoding(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    match lost_in_encoding(plan)? {
        None => Ok(()),
        Some(lost) => Err(DataFusionError::Plan(format!(
            "the plan cannot be sent to another machine: {lost}; run it where it was planned"
        ))),
    }
}

fn only_input(inputs: &[Arc<dyn ExecutionPlan>]) -> Result<&Arc<dyn ExecutionPlan>> {
    match inputs {
        [input] => Ok(input),
        _ => Err(DataFusionError::Plan(format!(
            "the bytes of a plan are damaged: a node of one input has {}",
            inputs.len()
        ))),
    }
}

impl PhysicalExtensionCodec for WarplineCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match Node::decode(buf).map_err(damaged)?.kind {
            Some(Kind::Fragment(fragment)) => {
                self.fragment(fragment, inputs, ctx, proto_converter)
            }
            Some(Kind::Report(report)) => Ok(self.report(report, only_input(inputs)?)),
            Some(Kind::TimeLimit(milliseconds)) => {
                let limit = Duration::from_millis(milliseconds);
                let input = Arc::clone(only_input(inputs)?);
                Ok(Arc::new(TimeLimitExec::new(input, limit)))
            }
            Some(Kind::GivesWay(())) => {
                Ok(Arc::new(GivesWayExec::new(Arc::clone(only_input(inputs)?))))
            }
            Some(Kind::Input(Input { number, rows })) => {
                let number = number as usize;
                let input = self.inputs.get(number).ok_or_else(|| {
                    let what = "the bytes of a plan are damaged: a fragment lacks an input";
                    DataFusionError::Plan(what.into())
                })?;
                let rows = rows.map(|rows| rows as usize);
                Ok(Arc::new(InputExec::new(number, input, rows)))
            }
            Some(Kind::Other(buf)) => self.others.try_decode(&buf, inputs, ctx, proto_converter),
            None => Err(DataFusionError::Plan(
                "the plan has a node that this version of Warpline does not know; use the same version on both sides"
                    .into(),
            )),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let kind = if let Some(fragment) = node.downcast_ref::<GpuFragmentExec>() {
            check_encoding(fragment.original())?;
            let original = proto_converter.execution_plan_to_proto(fragment.original(), self)?;
            let options = fragment.options();
            Kind::Fragment(Fragment {
                original: original.encode_to_vec(),
                settings: options.settings.iter().cloned().collect(),
                tail: options.tail.clone(),
            })
        } else if let Some(input) = node.downcast_ref::<InputExec>() {
            Kind::Input(Input {
                number: input.number() as u64,
                rows: input.rows().map(|rows| rows as u64),
            })
        } else if let Some(report) = node.downcast_ref::<PlacementReportExec>() {
            // A refused plan does not run elsewhere either.
            if let Some(refusal) = report.refusal() {
                return Err(refusal.clone().into());
            }
            check_encoding(&node)?;
            let operators = report.cpu_operators().iter().map(|operator| Operator {
                name: operator.operator.clone(),
                reason: operator.reason.clone(),
                count: operator.count as u64,
                fallback: operator.fallback,
            });
            Kind::Report(Report {
                operators: operators.collect(),
            })
        } else if let Some(limit) = node.downcast_ref::<TimeLimitExec>() {
            let milliseconds = limit.limit().as_millis();
            Kind::TimeLimit(u64::try_from(milliseconds).unwrap_or(u64::MAX))
        } else if node.is::<GivesWayExec>() {
            Kind::GivesWay(())
        } else {
            let mut other = Vec::new();
            self.others.try_encode(node, &mut other, proto_converter)?;
            Kind::Other(other)
        };
        buf.extend(Node { kind: Some(kind) }.encode_to_vec());
        Ok(())
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        match name {
            ONE_ROW => return Ok(one_row()),
            interval_product::NAME => return Ok(interval_product()),
            _ => {}
        }
        if let Some(function) =
            statements::scalar_function(name).or_else(|| structs::function(name))
        {
            return Ok(function);
        }
        self.others.try_decode_udf(name, buf)
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.others.try_encode_udf(node, buf)
    }

    fn try_decode_higher_order_function(
        &self,
        name: &str,
        buf: &[u8],
    ) -> Result<Arc<HigherOrderUDF>> {
        self.others.try_decode_higher_order_function(name, buf)
    }

    fn try_encode_higher_order_function(
        &self,
        node: &HigherOrderUDF,
        buf: &mut Vec<u8>,
    ) -> Result<()> {
        self.others.try_encode_higher_order_function(node, buf)
    }

    fn try_decode_expr(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        ctx: &PhysicalExprDecodeCtx<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        self.others.try_decode_expr(buf, inputs, ctx)
    }

    fn try_encode_expr(
        &self,
        node: &Arc<dyn PhysicalExpr>,
        buf: &mut Vec<u8>,
        ctx: &PhysicalExprEncodeCtx<'_>,
    ) -> Result<()> {
        self.others.try_encode_expr(node, buf, ctx)
    }

    fn try_decode_udaf(&self, name: &str, buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        match ordered_set::function(name) {
            Some(function) => Ok(function),
            None => self.others.try_decode_udaf(name, buf),
        }
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.others.try_encode_udaf(node, buf)
    }

    fn try_decode_udwf(&self, name: &str, buf: &[u8]) -> Result<Arc<WindowUDF>> {
        match name {
            LAST_KNOWN => Ok(last_known()),
            _ => self.others.try_decode_udwf(name, buf),
        }
    }

    fn try_encode_udwf(&self, node: &WindowUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.others.try_encode_udwf(node, buf)
    }
}
