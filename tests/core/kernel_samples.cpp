#include "kernel_samples.h"

#include "kernel/builder.h"

namespace reprise::test {

using namespace kernel;

namespace {

constexpr DType kFloat = DType::Float32;
constexpr std::int64_t kBlock = 4096;  // elements a unit of pointwise kernels

class SampleBuilder {
 public:
  SampleBuilder(std::int64_t rows, std::int64_t columns) : rows_(rows), columns_(columns) {}

  KernelSample finish(std::string name, std::vector<std::int64_t> index_limits = {}) && {
    KernelSample sample{std::move(name), std::move(b_).finish(), std::move(index_limits)};
    sample.index_limits.resize(sample.kernel.count_arguments(), -1);
    return sample;
  }

  // --- shorthands

  ValueId number(double value) { return b_.constant(kFloat, value); }
  ValueId add(ValueId a, ValueId b) { return b_.op(ScalarOp::Add, a, b); }
  ValueId sub(ValueId a, ValueId b) { return b_.op(ScalarOp::Sub, a, b); }
  ValueId mul(ValueId a, ValueId b) { return b_.op(ScalarOp::Mul, a, b); }
  ValueId div(ValueId a, ValueId b) { return b_.op(ScalarOp::Div, a, b); }
  ValueId fma(ValueId a, ValueId b, ValueId c) { return b_.op(ScalarOp::Fma, a, b, c); }
  ValueId sleef(MathFunction function, ValueId a) { return b_.math(function, Numerics::Sleef, a); }
  ValueId relu(ValueId a) {
    const ValueId zero = number(0);
    return b_.op(ScalarOp::Select, b_.op(ScalarOp::Gt, zero, a), zero, a);
  }
  ValueId rsqrt(ValueId a) { return div(number(1), b_.op(ScalarOp::Sqrt, a)); }

  // Abramowitz and Stegun 7.1.26, as ATen's vectors have it.
  ValueId erf(ValueId x) {
    const ValueId t = div(number(1), fma(number(0.3275911), b_.op(ScalarOp::Abs, x), number(1)));
    ValueId r = fma(number(1.061405429), t, number(-1.453152027));
    for (const double coefficient : {1.421413741, -0.284496736, 0.254829592}) r = fma(r, t, number(coefficient));
    const ValueId e = b_.op(ScalarOp::Neg, sleef(MathFunction::Exp, b_.op(ScalarOp::Neg, mul(x, x))));
    const ValueId y = fma(mul(e, t), r, number(1));
    const ValueId sign = b_.op(ScalarOp::And, b_.bitcast(x, DType::Int32), b_.constant(DType::Int32, INT32_MIN));
    return b_.bitcast(b_.op(ScalarOp::Xor, b_.bitcast(y, DType::Int32), sign), kFloat);
  }

  // --- loops

  // Units of kBlock elements; the loop variable of the elements.
  ValueId begin_elements(std::int64_t count) {
    const ValueId unit = b_.begin_parallel((count + kBlock - 1) / kBlock);
    return b_.begin_loop_with_limit(LoopKind::Vector, Affine(unit) * kBlock, Affine(unit) * kBlock + kBlock, count);
  }
  void end_both() {
    b_.end_loop();
    b_.end_loop();
  }
  ValueId begin_row() { return b_.begin_loop(LoopKind::Vector, 0, columns_); }
  Affine at(ValueId row, ValueId column) const { return Affine(row) * columns_ + column; }

  // Mean and 1 / standard deviation of a row, in two passes.
  template <class Load>
  std::pair<ValueId, ValueId> normalise(Load load, const std::vector<BufferId>& keep, ValueId row) {
    const ValueId count = number(static_cast<double>(columns_));
    const ValueId sum = b_.accumulator(Combine::Sum, kFloat);
    ValueId j = begin_row();
    const ValueId x = load(j);
    if (!keep.empty()) b_.store(keep[0], at(row, j), x);
    b_.reduce(sum, x);
    b_.end_loop();
    const ValueId mean = div(b_.result(sum), count);
    const ValueId squares = b_.accumulator(Combine::Sum, kFloat);
    j = begin_row();
    const ValueId d = sub(keep.empty() ? load(j) : b_.load(keep[0], at(row, j)), mean);
    b_.reduce(squares, mul(d, d));
    b_.end_loop();
    return {mean, rsqrt(add(div(b_.result(squares), count), number(1e-5)))};
  }

  // --- the kernels

  KernelSample make_chain() && {
    const std::int64_t n = rows_ * columns_;
    const BufferId x = b_.add_buffer(kFloat, kRead, n), y = b_.add_buffer(kFloat, kWrite, n);
    const ValueId j = begin_elements(n);
    const ValueId v = b_.load(x, j);
    const ValueId sigmoid = div(number(1), add(sleef(MathFunction::Exp, b_.op(ScalarOp::Neg, v)), number(1)));
    const ValueId left = mul(sleef(MathFunction::Tanh, v), sigmoid);
    const ValueId log = sleef(MathFunction::Log, add(sleef(MathFunction::Exp, v), number(1)));
    b_.store(y, j, add(left, mul(log, sleef(MathFunction::Erf, v))));
    end_both();
    return std::move(*this).finish("chain");
  }

  KernelSample make_strict_chain() && {  // the same as separate operations of eager: MKL's functions
    const std::int64_t n = rows_ * columns_;
    const BufferId x = b_.add_buffer(kFloat, kRead, n), y = b_.add_buffer(kFloat, kWrite, n);
    const ValueId j = begin_elements(n);
    const ValueId v = b_.load(x, j);
    const ValueId e = add(b_.math(MathFunction::Exp, Numerics::Mkl, v), number(1));
    b_.store(y, j, mul(b_.math(MathFunction::Log, Numerics::Mkl, e), b_.math(MathFunction::Tanh, Numerics::Mkl, v)));
    end_both();
    return std::move(*this).finish("strict_chain");
  }

  KernelSample make_add_relu() && {
    const std::int64_t n = rows_ * columns_;
    const BufferId a = b_.add_buffer(kFloat, kRead, n), c = b_.add_buffer(kFloat, kRead, n);
    const BufferId y = b_.add_buffer(kFloat, kWrite, n);
    const ValueId j = begin_elements(n);
    b_.store(y, j, relu(add(b_.load(a, j), b_.load(c, j))));
    end_both();
    return std::move(*this).finish("add_relu");
  }

  KernelSample make_bias_gelu() && {
    const BufferId x = b_.add_buffer(kFloat, kRead, rows_ * columns_), bias = b_.add_buffer(kFloat, kRead, columns_);
    const BufferId y = b_.add_buffer(kFloat, kWrite, rows_ * columns_);
    const ValueId i = b_.begin_parallel(rows_);
    const ValueId j = begin_row();
    const ValueId v = add(b_.load(x, at(i, j)), b_.load(bias, j));
    const ValueId t = add(erf(mul(v, number(0.70710678118654752440))), number(1));
    b_.store(y, at(i, j), mul(mul(v, number(0.5)), t));
    end_both();
    return std::move(*this).finish("bias_gelu");
  }

  KernelSample make_layer_norm() && {
    const BufferId x = b_.add_buffer(kFloat, kRead, rows_ * columns_), weight = b_.add_buffer(kFloat, kRead, columns_);
    const BufferId bias = b_.add_buffer(kFloat, kRead, columns_), y = b_.add_buffer(kFloat, kWrite, rows_ * columns_);
    const ValueId i = b_.begin_parallel(rows_);
    const auto [mean, scale] = normalise([&](ValueId j) { return b_.load(x, at(i, j)); }, {}, i);
    const ValueId j = begin_row();
    const ValueId d = mul(sub(b_.load(x, at(i, j)), mean), scale);
    b_.store(y, at(i, j), fma(d, b_.load(weight, j), b_.load(bias, j)));
    end_both();
    return std::move(*this).finish("layer_norm");
  }

  KernelSample make_rms_norm() && {
    const BufferId x = b_.add_buffer(kFloat, kRead, rows_ * columns_), weight = b_.add_buffer(kFloat, kRead, columns_);
    const BufferId y = b_.add_buffer(kFloat, kWrite, rows_ * columns_);
    const ValueId i = b_.begin_parallel(rows_);
    const ValueId squares = b_.accumulator(Combine::Sum, kFloat);
    ValueId j = begin_row();
    const ValueId v = b_.load(x, at(i, j));
    b_.reduce(squares, mul(v, v));
    b_.end_loop();
    const ValueId mean = div(b_.result(squares), number(static_cast<double>(columns_)));
    const ValueId scale = rsqrt(add(mean, number(1e-5)));
    j = begin_row();
    b_.store(y, at(i, j), mul(mul(b_.load(x, at(i, j)), scale), b_.load(weight, j)));
    end_both();
    return std::move(*this).finish("rms_norm");
  }

  KernelSample make_softmax() && {
    const BufferId x = b_.add_buffer(kFloat, kRead, rows_ * columns_);
    const BufferId y = b_.add_buffer(kFloat, kReadWrite, rows_ * columns_);
    const ValueId i = b_.begin_parallel(rows_);
    const ValueId most = b_.accumulator(Combine::Max, kFloat);
    ValueId j = begin_row();
    b_.reduce(most, b_.load(x, at(i, j)));
    b_.end_loop();
    const ValueId m = b_.result(most);
    const ValueId sum = b_.accumulator(Combine::Sum, kFloat);
    j = begin_row();
    const ValueId e = sleef(MathFunction::Exp, sub(b_.load(x, at(i, j)), m));
    b_.store(y, at(i, j), e);
    b_.reduce(sum, e);
    b_.end_loop();
    const ValueId s = b_.result(sum);
    j = begin_row();
    b_.store(y, at(i, j), div(b_.load(y, at(i, j)), s));
    end_both();
    return std::move(*this).finish("softmax");
  }

  // Columns of a block in lanes.
  ValueId begin_columns() {
    constexpr std::int64_t kColumns = 64;
    const ValueId unit = b_.begin_parallel((columns_ + kColumns - 1) / kColumns);
    return b_.begin_loop_with_limit(LoopKind::Vector, Affine(unit) * kColumns, Affine(unit) * kColumns + kColumns,
                                    columns_);
  }

  KernelSample make_softmax_columns() && {
    const BufferId x = b_.add_buffer(kFloat, kRead, rows_ * columns_);
    const BufferId y = b_.add_buffer(kFloat, kReadWrite, rows_ * columns_);
    const ValueId j = begin_columns();
    const ValueId most = b_.accumulator(Combine::Max, kFloat);
    ValueId i = b_.begin_loop(LoopKind::Serial, 0, rows_);
    b_.reduce(most, b_.load(x, at(i, j)));
    b_.end_loop();
    const ValueId m = b_.result(most);
    const ValueId sum = b_.accumulator(Combine::Sum, kFloat);
    i = b_.begin_loop(LoopKind::Serial, 0, rows_);
    const ValueId e = sleef(MathFunction::Exp, sub(b_.load(x, at(i, j)), m));
    b_.store(y, at(i, j), e);
    b_.reduce(sum, e);
    b_.end_loop();
    const ValueId s = b_.result(sum);
    i = b_.begin_loop(LoopKind::Serial, 0, rows_);
    b_.store(y, at(i, j), div(b_.load(y, at(i, j)), s));
    b_.end_loop();
    end_both();
    return std::move(*this).finish("softmax_columns");
  }

  KernelSample make_cross_entropy() && {
    const BufferId x = b_.add_buffer(kFloat, kRead, rows_ * columns_),
                   target = b_.add_buffer(DType::Int64, kRead, rows_);
    const BufferId loss = b_.add_buffer(kFloat, kWrite, rows_);
    const ValueId i = b_.begin_parallel(rows_);
    const ValueId most = b_.accumulator(Combine::Max, kFloat);
    ValueId j = begin_row();
    b_.reduce(most, b_.load(x, at(i, j)));
    b_.end_loop();
    const ValueId m = b_.result(most);
    const ValueId sum = b_.accumulator(Combine::Sum, kFloat);
    j = begin_row();
    b_.reduce(sum, sleef(MathFunction::Exp, sub(b_.load(x, at(i, j)), m)));
    b_.end_loop();
    const ValueId picked = b_.load(x, Affine(i) * columns_ + b_.load(target, i));
    b_.store(loss, i, sub(sleef(MathFunction::Log, b_.result(sum)), sub(picked, m)));
    b_.end_loop();
    return std::move(*this).finish("cross_entropy", {-1, columns_, -1});
  }

  KernelSample make_sum_rows() && {
    const BufferId x = b_.add_buffer(kFloat, kRead, rows_ * columns_), y = b_.add_buffer(kFloat, kWrite, rows_);
    const ValueId i = b_.begin_parallel(rows_);
    const ValueId sum = b_.accumulator(Combine::Sum, kFloat);
    const ValueId j = begin_row();
    b_.reduce(sum, b_.load(x, at(i, j)));
    b_.end_loop();
    b_.store(y, i, b_.result(sum));
    b_.end_loop();
    return std::move(*this).finish("sum_rows");
  }

  KernelSample make_sum_columns() && {
    const BufferId x = b_.add_buffer(kFloat, kRead, rows_ * columns_), y = b_.add_buffer(kFloat, kWrite, columns_);
    const ValueId j = begin_columns();
    const ValueId sum = b_.accumulator(Combine::Sum, kFloat);
    const ValueId i = b_.begin_loop(LoopKind::Serial, 0, rows_);
    b_.reduce(sum, b_.load(x, at(i, j)));
    b_.end_loop();
    b_.store(y, j, b_.result(sum));
    end_both();
    return std::move(*this).finish("sum_columns");
  }

  KernelSample make_sum_all() && {  // first level: a partial sum a unit
    const std::int64_t n = rows_ * columns_;
    const std::int64_t units = (n + kBlock - 1) / kBlock;
    const BufferId x = b_.add_buffer(kFloat, kRead, n), partial = b_.add_buffer(kFloat, kWrite, units);
    const ValueId unit = b_.begin_parallel(units);
    const ValueId sum = b_.accumulator(Combine::Sum, kFloat);
    const ValueId j =
        b_.begin_loop_with_limit(LoopKind::Vector, Affine(unit) * kBlock, Affine(unit) * kBlock + kBlock, n);
    b_.reduce(sum, b_.load(x, j));
    b_.end_loop();
    b_.store(partial, unit, b_.result(sum));
    b_.end_loop();
    return std::move(*this).finish("sum_all");
  }

  KernelSample make_batch_norm_statistics() && {
    constexpr std::int64_t kChannels = 4;
    const BufferId x = b_.add_buffer(kFloat, kRead, rows_ * kChannels * columns_);
    const BufferId mean_out = b_.add_buffer(kFloat, kWrite, kChannels),
                   var_out = b_.add_buffer(kFloat, kWrite, kChannels);
    const ValueId c = b_.begin_parallel(kChannels);
    const ValueId count = number(static_cast<double>(rows_ * columns_));
    const auto index = [&](ValueId n, ValueId j) {
      return Affine(n) * (kChannels * columns_) + Affine(c) * columns_ + j;
    };
    const ValueId sum = b_.accumulator(Combine::Sum, kFloat);
    ValueId n = b_.begin_loop(LoopKind::Serial, 0, rows_);
    ValueId j = begin_row();
    b_.reduce(sum, b_.load(x, index(n, j)));
    end_both();
    const ValueId mean = div(b_.result(sum), count);
    b_.store(mean_out, c, mean);
    const ValueId squares = b_.accumulator(Combine::Sum, kFloat);
    n = b_.begin_loop(LoopKind::Serial, 0, rows_);
    j = begin_row();
    const ValueId d = sub(b_.load(x, index(n, j)), mean);
    b_.reduce(squares, mul(d, d));
    end_both();
    b_.store(var_out, c, div(b_.result(squares), count));
    b_.end_loop();
    return std::move(*this).finish("batch_norm_statistics");
  }

  KernelSample make_transpose_add() && {
    constexpr std::int64_t kTile = 64;
    const BufferId a = b_.add_buffer(kFloat, kRead, rows_ * columns_),
                   c = b_.add_buffer(kFloat, kRead, rows_ * columns_);
    const BufferId y = b_.add_buffer(kFloat, kWrite, rows_ * columns_);
    const ValueId unit = b_.begin_parallel((rows_ + kTile - 1) / kTile);
    const ValueId block = b_.begin_loop(LoopKind::Serial, 0, columns_, kTile);
    const ValueId i =
        b_.begin_loop_with_limit(LoopKind::TileRows, Affine(unit) * kTile, Affine(unit) * kTile + kTile, rows_);
    const ValueId j = b_.begin_loop_with_limit(LoopKind::Vector, block, Affine(block) + kTile, columns_);
    b_.store(y, at(i, j), add(b_.load(a, at(i, j)), b_.load(c, Affine(j) * rows_ + i)));
    end_both();
    end_both();
    return std::move(*this).finish("transpose_add");
  }

  KernelSample make_embedding_layer_norm() && {
    constexpr std::int64_t kVocabulary = 50;
    const BufferId tokens = b_.add_buffer(DType::Int64, kRead, rows_);
    const BufferId table = b_.add_buffer(kFloat, kRead, kVocabulary * columns_);
    const BufferId positions = b_.add_buffer(kFloat, kRead, rows_ * columns_);
    const BufferId weight = b_.add_buffer(kFloat, kRead, columns_), bias = b_.add_buffer(kFloat, kRead, columns_);
    const BufferId y = b_.add_buffer(kFloat, kReadWrite, rows_ * columns_);
    const ValueId i = b_.begin_parallel(rows_);
    const ValueId token = b_.load(tokens, i);
    const auto load = [&](ValueId j) {
      return add(b_.load(table, Affine(token) * columns_ + j), b_.load(positions, at(i, j)));
    };
    const auto [mean, scale] = normalise(load, {y}, i);
    const ValueId j = begin_row();
    const ValueId d = mul(sub(b_.load(y, at(i, j)), mean), scale);
    b_.store(y, at(i, j), fma(d, b_.load(weight, j), b_.load(bias, j)));
    end_both();
    return std::move(*this).finish("embedding_layer_norm", {kVocabulary});
  }

  // Indexes of any size: flag 0 for those outside of the table (one for all elements of a row), 1 for what is never, 2
  // for a sign.
  KernelSample make_checked_rows() && {
    constexpr std::int64_t kVocabulary = 1000;
    const BufferId indices = b_.add_buffer(DType::Int64, kRead, rows_);
    const BufferId table = b_.add_buffer(kFloat, kRead, kVocabulary * columns_);
    const BufferId y = b_.add_buffer(kFloat, kWrite, rows_ * columns_);
    const BufferId flags = b_.add_buffer(DType::Int32, kWrite, 3);
    const ValueId one = b_.constant(DType::Int32, 1);
    const ValueId i = b_.begin_parallel(rows_);
    const ValueId index = b_.load(indices, i);
    const ValueId low = b_.op(ScalarOp::Max, index, b_.constant(DType::Int64, 0));
    const ValueId safe = b_.op(ScalarOp::Min, low, b_.constant(DType::Int64, kVocabulary - 1));
    b_.store(flags, 0, one, b_.op(ScalarOp::Ne, index, safe));
    const ValueId j = begin_row();
    const ValueId value = b_.load(table, Affine(safe) * columns_ + j);
    const ValueId magnitude = b_.op(ScalarOp::Abs, value);
    b_.store(flags, 1, one, b_.op(ScalarOp::Lt, magnitude, number(0)));
    b_.store(flags, 2, one, b_.op(ScalarOp::Lt, value, number(0)));
    b_.store(y, at(i, j), magnitude);
    end_both();
    return std::move(*this).finish("checked_rows");
  }

  KernelSample make_bfloat16() && {
    const std::int64_t n = rows_ * columns_;
    BufferId inputs[3];
    for (BufferId& input : inputs) input = b_.add_buffer(DType::BFloat16, kRead, n);
    const BufferId y = b_.add_buffer(DType::BFloat16, kWrite, n);
    const ValueId j = begin_elements(n);
    const auto load = [&](int i) { return b_.cast(b_.load(inputs[i], j), kFloat); };
    const ValueId product = b_.op(ScalarOp::RoundBF16, mul(load(0), load(1)));
    const ValueId sum = b_.op(ScalarOp::RoundBF16, add(product, load(2)));
    b_.store(y, j, b_.cast(relu(sum), DType::BFloat16));
    end_both();
    return std::move(*this).finish("bfloat16");
  }

  KernelSample make_normalise_bytes() && {
    constexpr std::int64_t kChannels = 3;
    const BufferId x = b_.add_buffer(DType::UInt8, kRead, rows_ * kChannels * columns_);
    const BufferId mean = b_.add_buffer(kFloat, kRead, kChannels), deviation = b_.add_buffer(kFloat, kRead, kChannels);
    const BufferId y = b_.add_buffer(kFloat, kWrite, rows_ * kChannels * columns_);
    const ValueId i = b_.begin_parallel(rows_ * kChannels);
    const ValueId channel = b_.op(ScalarOp::RemTrunc, i, b_.constant(DType::Int64, kChannels));
    const ValueId m = b_.load(mean, channel);
    const ValueId d = b_.load(deviation, channel);
    const ValueId j = begin_row();
    const ValueId v = div(b_.cast(b_.load(x, at(i, j)), kFloat), number(255));
    b_.store(y, at(i, j), div(sub(v, m), d));
    end_both();
    return std::move(*this).finish("normalise_bytes");
  }

  KernelSample make_integers() && {
    const std::int64_t n = rows_ * columns_;
    const BufferId a = b_.add_buffer(DType::Int32, kRead, n), c = b_.add_buffer(DType::Int32, kRead, n);
    const BufferId y = b_.add_buffer(DType::Int32, kWrite, n);
    const ValueId j = begin_elements(n);
    const ValueId u = b_.load(a, j);
    const ValueId v = b_.load(c, j);
    b_.store(y, j, b_.op(ScalarOp::Xor, add(mul(u, v), u), v));
    end_both();
    return std::move(*this).finish("integers");
  }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  KernelBuilder b_;
};

}  // namespace

std::vector<KernelSample> make_kernel_samples(std::int64_t rows, std::int64_t columns) {
  const auto builder = [&] { return SampleBuilder(rows, columns); };
  std::vector<KernelSample> samples;
  samples.push_back(builder().make_chain());
  samples.push_back(builder().make_strict_chain());
  samples.push_back(builder().make_add_relu());
  samples.push_back(builder().make_bias_gelu());
  samples.push_back(builder().make_layer_norm());
  samples.push_back(builder().make_rms_norm());
  samples.push_back(builder().make_softmax());
  samples.push_back(builder().make_softmax_columns());
  samples.push_back(builder().make_cross_entropy());
  samples.push_back(builder().make_sum_rows());
  samples.push_back(builder().make_sum_columns());
  samples.push_back(builder().make_sum_all());
  samples.push_back(builder().make_batch_norm_statistics());
  samples.push_back(builder().make_transpose_add());
  samples.push_back(builder().make_embedding_layer_norm());
  samples.push_back(builder().make_checked_rows());
  samples.push_back(builder().make_bfloat16());
  samples.push_back(builder().make_normalise_bytes());
  samples.push_back(builder().make_integers());
  return samples;
}

}  // namespace reprise::test
