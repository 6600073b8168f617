//! A plan of TensorRT for RTX has readable text that names its kernels, and the tensors between them.

use std::collections::{BTreeMap, HashMap};

/// Kernels and tensors of a plan.
#[derive(Debug, Default)]
pub struct PlanText {
    /// Fused attentions by the format of their sums, both products' if they differ. `scalar` is the kernel for a single
    /// query, which has no matrix units.
    pub attentions: BTreeMap<String, usize>,
    /// Products with weights by the format of their sums, or by the format of their factors if that has 8 bits. Those that
    /// TensorRT has joined count as several.
    pub linear: BTreeMap<&'static str, usize>,
    /// Exact GELUs in the kernel of the convolution or product before them.
    pub gelus: usize,
    /// The largest tensor of fixed size in GPU memory between two kernels, in bytes, and its name.
    pub largest: (u64, String),
}

impl PlanText {
    /// Reads a plan for one compute capability.
    pub fn read(plan: &[u8]) -> Self {
        let mut found = Self::default();
        let mut elements = HashMap::new();
        let mut calls = Vec::new();
        let mut products: Vec<Product> = Vec::new();
        let mut sums = HashMap::new();
        let mut traits: Vec<String> = Vec::new();
        let mut wanted_traits = 0;
        for line in plan.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            if wanted_traits > 0 {
                traits.push(sum_format(&line));
                wanted_traits -= 1;
            } else if line.contains("= fmha::Kernel_traits_v2") {
                traits.clear();
                wanted_traits = 2;
            } else if let Some((_, name)) = line.split_once("__global__ void _gemm_mha") {
                traits.dedup();
                sums.insert(format!("_gemm_mha{}", name.trim_end_matches('(')), traits.join(" and "));
            } else if let Some(record) = after(&line, "tensor={ ") {
                found.tensor(record, &mut elements);
            } else if let Some(record) = after(&line, "  function={ name=") {
                let fused = ["_gemm_mha", "_gemv_mha"].iter().any(|kind| record.starts_with(kind));
                calls.extend(fused.then(|| field(record, "fqn=").to_owned()));
            } else if let Some(record) = after(&line, "  runtime_fusion={ name=") {
                let kernel = field(record, "__myl_");
                let is_product = ["Corr", "Fc"].iter().any(|kind| kernel.starts_with(kind));
                found.gelus += usize::from(is_product && kernel.contains("Erf"));
            } else if let Some(record) = after(&line, "fully_connected={ ") {
                products.push(Product::read(record));
            }
            if let Some(last) = products.last_mut() {
                last.layers(&line);
            }
        }
        for call in calls {
            let scalar = call.starts_with("_gemv_mha").then(|| "scalar".to_owned());
            let format = scalar.or_else(|| sums.get(&call).cloned()).unwrap_or_else(|| "unknown".into());
            *found.attentions.entry(format).or_default() += 1;
        }
        for product in products.iter().filter(|product| product.is_linear) {
            *found.linear.entry(product.kind(&elements)).or_default() += product.joined;
        }
        found
    }

    /// The number of attentions in one kernel each.
    pub fn fused(&self) -> usize {
        self.attentions.values().sum()
    }

    /// A tensor's record; `elements` collects the formats by name.
    fn tensor(&mut self, record: &str, elements: &mut HashMap<String, String>) {
        let name = quoted(record, "name=\"");
        let element = field(record, "type=");
        elements.insert(name.to_owned(), element.to_owned());
        if !record.contains("region=\"devmem") || record.contains("is_scratchspace=1") {
            return;
        }
        let dims =
            after(record, "dims={ ").and_then(|rest| rest.split_once('}')).map_or("", |(dims, _)| dims);
        // The sizes of dynamic dimensions are names.
        let Ok(dims) = dims.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>() else {
            return;
        };
        let bytes = dims.iter().product::<u64>() * if element == "float" { 4 } else { 2 };
        if bytes > self.largest.0 {
            self.largest = (bytes, name.to_owned());
        }
    }
}

/// A matrix product.
struct Product {
    factors: Vec<String>,
    /// The number of products that it stands for.
    joined: usize,
    accumulation: String,
    /// It comes from a product and not from a convolution, which TensorRT may compute as one.
    is_linear: bool,
    is_open: bool,
}

impl Product {
    fn read(record: &str) -> Self {
        let inputs =
            after(record, " input={").and_then(|rest| rest.split_once('}')).map_or("", |(list, _)| list);
        let factors = inputs.split('"').skip(1).step_by(2).take(2).map(str::to_owned).collect();
        let joined = quoted(record, "name=\"").split('+').count();
        let accumulation = field(record, "accumulation_type=").to_owned();
        Self { factors, joined, accumulation, is_linear: false, is_open: true }
    }

    /// Reads on in the list of ONNX layers, which has a line for each.
    fn layers(&mut self, line: &str) {
        if self.is_open {
            self.is_linear |= line.contains("/MatMul");
            self.is_open = !line.trim_end().ends_with('}');
        }
    }

    fn kind(&self, elements: &HashMap<String, String>) -> &'static str {
        let types: Vec<&str> =
            self.factors.iter().map(|name| elements.get(name).map_or("", String::as_str)).collect();
        match (types.as_slice(), self.accumulation.as_str()) {
            // An input whose record has no type is that of the weight: products have factors of one type.
            (["fp8_e4m3" | "", "fp8_e4m3"], _) => "fp8",
            (["int8" | "", "int8"], _) => "int8",
            (["half", ..], "0") => "half",
            _ => "single",
        }
    }
}

/// `Ampere_hmma_fp32_traits` → `single`.
fn sum_format(line: &str) -> String {
    let name = line.trim().trim_end_matches(',').trim_end_matches("_traits");
    match name.rsplit_once('_').map_or(name, |(_, format)| format) {
        "fp16" => "half".into(),
        // Matrix units have no sums in bfloat16.
        "fp32" | "bf16" => "single".into(),
        other => other.to_owned(),
    }
}

fn after<'t>(text: &'t str, mark: &str) -> Option<&'t str> {
    text.split_once(mark).map(|(_, rest)| rest)
}

/// The word after `mark`.
fn field<'t>(record: &'t str, mark: &str) -> &'t str {
    after(record, mark).and_then(|rest| rest.split_whitespace().next()).unwrap_or("")
}

/// The text between `mark`, which ends with a quotation mark, and the next one.
fn quoted<'t>(record: &'t str, mark: &str) -> &'t str {
    after(record, mark).and_then(|rest| rest.split('"').next()).unwrap_or("")
}
