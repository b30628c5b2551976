//! One translation per operator, in a file per family. `TABLE` says which function builds what.

mod activation;
mod attention;
mod boxes;
mod cast;
mod control;
mod conv;
mod elementwise;
mod grid;
mod index;
mod labels;
mod layout;
mod loss;
mod matmul;
mod microsoft;
mod microsoft_quant;
mod ml;
mod norm;
mod pool;
mod quant;
mod reduce;
mod resize;
mod rnn;
mod roi;
mod sequence;
mod signal;
mod source;
mod state;
mod text;
mod training;
mod trees;

use crate::ctx::Ctx;
use crate::import::Value;
use pando_base::Result;
use pando_graph::ValueId;

/// How an operator is built.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// One tensor, of the element type that the inputs suggest.
    One(fn(&mut Ctx) -> Result<ValueId>),
    Many(fn(&mut Ctx) -> Result<Vec<Value>>),
}

use Rule::{Many, One};

/// Operators of the default domain.
const TABLE: &[(&str, Rule)] = &[
    // Element by element.
    ("Abs", One(elementwise::abs)),
    ("Acos", One(elementwise::acos)),
    ("Acosh", One(elementwise::acosh)),
    ("Add", One(elementwise::add)),
    ("And", One(elementwise::and)),
    ("Asin", One(elementwise::asin)),
    ("Asinh", One(elementwise::asinh)),
    ("Atan", One(elementwise::atan)),
    ("Atanh", One(elementwise::atanh)),
    ("BitShift", One(elementwise::bit_shift)),
    ("BitwiseAnd", One(elementwise::and)),
    ("BitwiseNot", One(elementwise::not)),
    ("BitwiseOr", One(elementwise::or)),
    ("BitwiseXor", One(elementwise::xor)),
    ("Ceil", One(elementwise::ceil)),
    ("Clip", One(elementwise::clip)),
    ("Cos", One(elementwise::cos)),
    ("Cosh", One(elementwise::cosh)),
    ("Div", One(elementwise::div)),
    ("Equal", One(elementwise::equal)),
    ("Erf", One(elementwise::erf)),
    ("Exp", One(elementwise::exp)),
    ("Floor", One(elementwise::floor)),
    ("Greater", One(elementwise::greater)),
    ("GreaterOrEqual", One(elementwise::greater_or_equal)),
    ("Identity", Many(elementwise::identity)),
    ("IsInf", One(elementwise::is_inf)),
    ("IsNaN", One(elementwise::is_nan)),
    ("Less", One(elementwise::less)),
    ("LessOrEqual", One(elementwise::less_or_equal)),
    ("Log", One(elementwise::log)),
    ("Max", One(elementwise::max)),
    ("Mean", One(elementwise::mean)),
    ("Min", One(elementwise::min)),
    ("Mod", One(elementwise::modulo)),
    ("Mul", One(elementwise::mul)),
    ("Neg", One(elementwise::neg)),
    ("Not", One(elementwise::not)),
    ("Or", One(elementwise::or)),
    ("Pow", One(elementwise::pow)),
    ("Reciprocal", One(elementwise::reciprocal)),
    ("Round", One(elementwise::round)),
    ("Sign", One(elementwise::sign)),
    ("Sin", One(elementwise::sin)),
    ("Sinh", One(elementwise::sinh)),
    ("Sqrt", One(elementwise::sqrt)),
    ("Sub", One(elementwise::sub)),
    ("Sum", One(elementwise::sum)),
    ("Tan", One(elementwise::tan)),
    ("Tanh", One(elementwise::tanh)),
    ("Where", One(elementwise::where_op)),
    ("Xor", One(elementwise::xor)),
    // Activations.
    ("Celu", One(activation::celu)),
    ("Dropout", Many(activation::dropout)),
    ("Elu", One(activation::elu)),
    ("Gelu", One(activation::gelu)),
    ("HardSigmoid", One(activation::hard_sigmoid)),
    ("HardSwish", One(activation::hard_swish)),
    ("Hardmax", One(activation::hardmax)),
    ("LeakyRelu", One(activation::leaky_relu)),
    ("LogSoftmax", One(activation::log_softmax)),
    ("Mish", One(activation::mish)),
    ("PRelu", One(activation::prelu)),
    ("Relu", One(activation::relu)),
    ("Selu", One(activation::selu)),
    ("Shrink", One(activation::shrink)),
    ("Sigmoid", One(activation::sigmoid)),
    ("Softmax", One(activation::softmax)),
    ("Softplus", One(activation::softplus)),
    ("Softsign", One(activation::softsign)),
    ("SwiGLU", One(activation::swiglu)),
    ("Swish", One(activation::swish)),
    ("ThresholdedRelu", One(activation::thresholded_relu)),
    // Types.
    ("BitCast", Many(cast::bit_cast)),
    ("Cast", Many(cast::cast)),
    ("CastLike", Many(cast::cast_like)),
    // Layout and sizes.
    ("CenterCropPad", One(layout::center_crop_pad)),
    ("Concat", One(layout::concat)),
    ("DepthToSpace", One(layout::depth_to_space)),
    ("Expand", One(layout::expand)),
    ("Flatten", One(layout::flatten)),
    ("Pad", One(layout::pad)),
    ("Reshape", One(layout::reshape)),
    ("ReverseSequence", One(layout::reverse_sequence)),
    ("Shape", Many(layout::shape)),
    ("Size", Many(layout::size)),
    ("Slice", One(layout::slice)),
    ("SpaceToDepth", One(layout::space_to_depth)),
    ("Split", Many(layout::split)),
    ("Squeeze", One(layout::squeeze)),
    ("Tile", One(layout::tile)),
    ("Transpose", One(layout::transpose)),
    ("Trilu", One(layout::trilu)),
    ("Unsqueeze", One(layout::unsqueeze)),
    // Values from nothing.
    ("Bernoulli", Many(source::bernoulli)),
    ("BlackmanWindow", Many(source::blackman_window)),
    ("Constant", Many(source::constant)),
    ("ConstantOfShape", Many(source::constant_of_shape)),
    ("EyeLike", Many(source::eye_like)),
    ("HammingWindow", Many(source::hamming_window)),
    ("HannWindow", Many(source::hann_window)),
    ("OneHot", One(source::one_hot)),
    ("RandomNormal", One(source::random_normal)),
    ("RandomNormalLike", One(source::random_normal_like)),
    ("RandomUniform", One(source::random_uniform)),
    ("RandomUniformLike", One(source::random_uniform_like)),
    ("Range", One(source::range)),
    // Reductions and order.
    ("ArgMax", One(reduce::arg_max)),
    ("ArgMin", One(reduce::arg_min)),
    ("CumProd", One(reduce::cum_prod)),
    ("CumSum", One(reduce::cum_sum)),
    ("ReduceL1", One(reduce::l1)),
    ("ReduceL2", One(reduce::l2)),
    ("ReduceLogSum", One(reduce::log_sum)),
    ("ReduceLogSumExp", One(reduce::log_sum_exp)),
    ("ReduceMax", One(reduce::max)),
    ("ReduceMean", One(reduce::mean)),
    ("ReduceMin", One(reduce::min)),
    ("ReduceProd", One(reduce::prod)),
    ("ReduceSum", One(reduce::sum)),
    ("ReduceSumSquare", One(reduce::sum_square)),
    ("TopK", Many(reduce::top_k)),
    // Indices.
    ("Compress", One(index::compress)),
    ("Gather", One(index::gather)),
    ("GatherElements", One(index::gather_elements)),
    ("GatherND", One(index::gather_nd)),
    ("NonZero", One(index::non_zero)),
    ("Scatter", One(index::scatter_elements)),
    ("ScatterElements", One(index::scatter_elements)),
    ("ScatterND", One(index::scatter_nd)),
    ("TensorScatter", One(index::tensor_scatter)),
    ("Unique", Many(index::unique)),
    // Products.
    ("Conv", One(conv::conv)),
    ("Col2Im", One(conv::col2im)),
    ("ConvInteger", One(conv::conv_integer)),
    ("ConvTranspose", One(conv::conv_transpose)),
    ("DeformConv", One(grid::deform_conv)),
    ("Det", One(matmul::det)),
    ("Einsum", One(matmul::einsum)),
    ("Gemm", One(matmul::gemm)),
    ("MatMul", One(matmul::matmul)),
    // Pooling.
    ("AveragePool", One(pool::average_pool)),
    ("GlobalAveragePool", One(pool::global_average_pool)),
    ("GlobalLpPool", One(pool::global_lp_pool)),
    ("GlobalMaxPool", One(pool::global_max_pool)),
    ("LpPool", One(pool::lp_pool)),
    ("MaxPool", Many(pool::max_pool)),
    ("MaxUnpool", One(pool::max_unpool)),
    // Normalisation.
    ("BatchNormalization", Many(norm::batch_normalization)),
    ("GroupNormalization", One(norm::group_normalization)),
    ("InstanceNormalization", One(norm::instance_normalization)),
    ("LRN", One(norm::lrn)),
    ("LayerNormalization", Many(norm::layer_normalization)),
    ("LpNormalization", One(norm::lp_normalization)),
    ("MeanVarianceNormalization", One(norm::mean_variance_normalization)),
    // Written by ONNX Runtime into the default domain.
    ("SimplifiedLayerNormalization", One(norm::rms_normalization)),
    ("RMSNormalization", One(norm::rms_normalization)),
    // Attention and recurrence.
    ("Attention", Many(attention::attention)),
    ("CausalConvWithState", Many(state::causal_conv)),
    ("GRU", Many(rnn::gru)),
    ("LSTM", Many(rnn::lstm)),
    ("LinearAttention", Many(state::linear_attention)),
    ("RNN", Many(rnn::rnn)),
    ("RotaryEmbedding", One(attention::rotary_embedding)),
    // Losses.
    ("NegativeLogLikelihoodLoss", One(loss::negative_log_likelihood)),
    ("SoftmaxCrossEntropyLoss", Many(loss::softmax_cross_entropy)),
    // Quantisation.
    ("DequantizeLinear", Many(quant::dequantize_linear)),
    ("DynamicQuantizeLinear", Many(quant::dynamic_quantize_linear)),
    ("MatMulInteger", One(quant::matmul_integer)),
    ("QLinearConv", Many(quant::qlinear_conv)),
    ("QLinearMatMul", Many(quant::qlinear_matmul)),
    ("QuantizeLinear", Many(quant::quantize_linear)),
    // Images and signals.
    ("AffineGrid", One(grid::affine_grid)),
    ("DFT", One(signal::dft)),
    ("GridSample", One(grid::grid_sample)),
    ("MelWeightMatrix", Many(signal::mel_weight_matrix)),
    ("NonMaxSuppression", One(boxes::non_max_suppression)),
    ("Resize", One(resize::resize)),
    ("RoiAlign", One(roi::roi_align)),
    ("STFT", One(signal::stft)),
    ("Upsample", One(resize::upsample)),
    // Strings.
    ("StringConcat", Many(text::concat)),
    ("StringNormalizer", Many(text::normalizer)),
    ("StringSplit", Many(text::split)),
    ("TfIdfVectorizer", Many(text::tf_idf)),
    // Control flow, sequences, optionals.
    ("ConcatFromSequence", Many(sequence::concat)),
    ("If", Many(control::if_else)),
    ("Loop", Many(control::loop_op)),
    ("Optional", Many(sequence::optional)),
    ("OptionalGetElement", Many(sequence::optional_get_element)),
    ("OptionalHasElement", Many(sequence::optional_has_element)),
    ("Scan", Many(control::scan)),
    ("SequenceAt", Many(sequence::at)),
    ("SequenceConstruct", Many(sequence::construct)),
    ("SequenceEmpty", Many(sequence::empty)),
    ("SequenceErase", Many(sequence::erase)),
    ("SequenceInsert", Many(sequence::insert)),
    ("SequenceLength", Many(sequence::length)),
    ("SequenceMap", Many(sequence::map)),
    ("SplitToSequence", Many(sequence::split)),
];

/// Operators of other domains.
const MICROSOFT: &[(&str, Rule)] = &[
    ("Attention", Many(microsoft::attention)),
    ("BiasGelu", One(activation::bias_gelu)),
    ("DequantizeLinear", Many(quant::dequantize_linear)),
    ("DynamicQuantizeMatMul", One(microsoft_quant::dynamic_quantize_matmul)),
    ("EmbedLayerNormalization", Many(microsoft::embed_layer_normalization)),
    ("FastGelu", One(activation::fast_gelu)),
    ("FusedConv", One(conv::fused_conv)),
    ("FusedGemm", One(matmul::fused_gemm)),
    ("FusedMatMul", One(matmul::fused_matmul)),
    ("Gelu", One(activation::gelu)),
    ("GroupQueryAttention", Many(microsoft::group_query_attention)),
    ("LayerNormalization", Many(norm::layer_normalization)),
    ("MatMulIntegerToFloat", One(microsoft_quant::matmul_integer_to_float)),
    ("MatMulNBits", One(microsoft::matmul_nbits)),
    ("MultiHeadAttention", Many(microsoft::multi_head_attention)),
    ("NhwcMaxPool", One(microsoft_quant::nhwc_max_pool)),
    ("QAttention", Many(microsoft_quant::qattention)),
    ("QEmbedLayerNormalization", Many(microsoft_quant::qembed_layer_normalization)),
    ("QGemm", Many(microsoft_quant::qgemm)),
    ("QLinearAdd", Many(microsoft_quant::qlinear_add)),
    ("QLinearAveragePool", Many(microsoft_quant::qlinear_average_pool)),
    ("QLinearConcat", Many(microsoft_quant::qlinear_concat)),
    ("QLinearGlobalAveragePool", Many(microsoft_quant::qlinear_global_average_pool)),
    ("QLinearLeakyRelu", Many(microsoft_quant::qlinear_leaky_relu)),
    ("QLinearMul", Many(microsoft_quant::qlinear_mul)),
    ("QLinearSigmoid", Many(microsoft_quant::qlinear_sigmoid)),
    ("QLinearSoftmax", Many(microsoft_quant::qlinear_softmax)),
    ("QuantizeLinear", Many(quant::quantize_linear)),
    ("QuickGelu", One(activation::quick_gelu)),
    ("RotaryEmbedding", One(microsoft::rotary_embedding)),
    ("SimplifiedLayerNormalization", One(norm::rms_normalization)),
    ("SkipLayerNormalization", Many(microsoft::skip_layer_normalization)),
    ("SkipSimplifiedLayerNormalization", Many(microsoft::skip_simplified_layer_normalization)),
    ("TransposeMatMul", One(matmul::fused_matmul)),
];

const TRAINING: &[(&str, Rule)] = &[
    ("Adagrad", Many(training::adagrad)),
    ("Adam", Many(training::adam)),
    ("Momentum", Many(training::momentum)),
];

const PREVIEW: &[(&str, Rule)] = &[("FlexAttention", One(attention::flex_attention))];

const ML: &[(&str, Rule)] = &[
    ("ArrayFeatureExtractor", One(ml::array_feature_extractor)),
    ("Binarizer", One(ml::binarizer)),
    ("LabelEncoder", Many(labels::label_encoder)),
    ("TreeEnsemble", One(trees::tree_ensemble)),
];

const DOMAINS: &[(&str, &[(&str, Rule)])] = &[
    ("", TABLE),
    ("com.microsoft", MICROSOFT),
    ("ai.onnx.ml", ML),
    ("ai.onnx.preview", PREVIEW),
    ("ai.onnx.preview.training", TRAINING),
];

pub(crate) fn find(domain: &str, name: &str) -> Option<Rule> {
    let (_, table) = DOMAINS.iter().find(|(known, _)| *known == domain)?;
    table.iter().find(|(known, _)| *known == name).map(|&(_, rule)| rule)
}

pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    DOMAINS.iter().flat_map(|&(domain, table)| table.iter().map(move |&(name, _)| (domain, name)))
}
