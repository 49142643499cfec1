#include "kernel_fuzz.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel/builder.h"
#include "kernel/interpret.h"
#include "kernel/numbers.h"

namespace reprise::test {

using namespace kernel;

std::vector<void*> KernelData::get_pointers() {
  std::vector<void*> pointers;
  for (auto& buffer : buffers) pointers.push_back(buffer.data());
  return pointers;
}

namespace {

constexpr DType kDTypes[] = {DType::Bool,  DType::UInt8,   DType::Int8,     DType::Int16,   DType::Int32,
                             DType::Int64, DType::Float16, DType::BFloat16, DType::Float32, DType::Float64};

class Generator {
 public:
  Generator(std::uint32_t seed, std::int64_t length) : random_(seed), length_(length) {}

  KernelCase make(KernelShape shape) {
    switch (shape) {
      case KernelShape::Pointwise:
        make_pointwise();
        break;
      case KernelShape::Rows:
        make_rows();
        break;
      case KernelShape::Columns:
        make_columns();
        break;
      case KernelShape::Indirect:
        make_indirect();
        break;
      case KernelShape::Tile:
        make_tile();
        break;
      case KernelShape::Fused:
        make_pointwise();
        make_rows();
        make_pointwise();
        break;
    }
    KernelCase result;
    result.kernel = std::move(b_).finish();
    result.data = std::move(data_);
    return result;
  }

 private:
  std::uint32_t roll(std::uint32_t sides) { return random_() % sides; }
  DType pick_dtype() { return kDTypes[roll(std::size(kDTypes))]; }
  static bool is_number(DType dtype) { return dtype != DType::Bool && !is_half(dtype); }
  static bool is_wide_float(DType dtype) { return dtype == DType::Float32 || dtype == DType::Float64; }

  BufferId add_input(DType dtype, std::int64_t count, std::int64_t most = -1) {
    data_.buffers.push_back(make_random_elements(random_, dtype, count, most));
    return b_.add_buffer(dtype, kRead, count);
  }
  BufferId add_output(DType dtype, std::int64_t count) {
    data_.buffers.push_back(make_random_elements(random_, dtype, count));
    return b_.add_buffer(dtype, kReadWrite, count);
  }

  ValueId pick(const std::vector<ValueId>& values) { return values[roll(static_cast<std::uint32_t>(values.size()))]; }

  // A value of the dtype: one that is there, or a cast of one.
  ValueId get_as(DType dtype, const std::vector<ValueId>& values) {
    for (int i = 0; i < 4; ++i) {
      const ValueId value = pick(values);
      if (b_.get_dtype(value) == dtype) return value;
    }
    return b_.cast(pick(values), dtype);
  }

  // Adds `count` operations over `values`.
  void grow(std::vector<ValueId>& values, const std::vector<ValueId>& loads, int count) {
    for (int i = 0; i < count; ++i) values.push_back(add_operation(values, loads));
  }

  ValueId add_operation(const std::vector<ValueId>& values, const std::vector<ValueId>& loads) {
    const DType dtype = pick_dtype();
    switch (roll(9)) {
      case 0:
        return b_.cast(pick(values), dtype);
      case 1: {
        const DType other = dtype == DType::Float16 || dtype == DType::BFloat16 ? DType::Float32 : dtype;
        constexpr ScalarOp kOps[] = {ScalarOp::Eq, ScalarOp::Ne, ScalarOp::Lt,
                                     ScalarOp::Le, ScalarOp::Gt, ScalarOp::Ge};
        return b_.op(kOps[roll(6)], get_as(other, values), get_as(other, values));
      }
      case 2:
        return b_.op(ScalarOp::Select, get_as(DType::Bool, values), get_as(dtype, values), get_as(dtype, values));
      case 3: {
        const ValueId a = get_as(DType::Float32, values);
        return b_.op(roll(2) == 0 ? ScalarOp::RoundBF16 : ScalarOp::RoundF16, a);
      }
      case 4: {  // float functions
        const DType real = roll(3) == 0 ? DType::Float64 : DType::Float32;
        if (roll(3) == 0) {
          const MathFunction function = static_cast<MathFunction>(roll(27));
          const Numerics numerics = static_cast<Numerics>(roll(3));
          const bool is_binary = get_row(function).operands == 2;
          return b_.math(function, numerics, get_as(real, values), is_binary ? get_as(real, values) : ValueId());
        }
        constexpr ScalarOp kOps[] = {ScalarOp::Sqrt, ScalarOp::Floor, ScalarOp::Ceil, ScalarOp::Trunc,
                                     ScalarOp::RoundEven};
        return b_.op(kOps[roll(5)], get_as(real, values));
      }
      case 5: {
        if (types::is_integral(dtype)) {
          constexpr ScalarOp kOps[] = {ScalarOp::And, ScalarOp::Or, ScalarOp::Xor};
          if (roll(4) == 0) return b_.op(ScalarOp::Not, get_as(dtype, values));
          return b_.op(kOps[roll(3)], get_as(dtype, values), get_as(dtype, values));
        }
        const DType real = dtype == DType::Float64 ? dtype : DType::Float32;
        if (roll(2) == 0) return b_.op(ScalarOp::Div, get_as(real, values), get_as(real, values));
        // The sign of a computed NaN is nobody's promise: copy signs of what was loaded.
        const ValueId sign = pick(loads);
        return b_.get_dtype(sign) == real ? b_.op(ScalarOp::CopySign, get_as(real, values), sign)
                                          : b_.op(ScalarOp::Abs, get_as(real, values));
      }
      case 6: {
        const DType whole = types::is_integral(dtype) && dtype != DType::Bool ? dtype : DType::Int32;
        constexpr ScalarOp kOps[] = {ScalarOp::DivTrunc, ScalarOp::DivFloor, ScalarOp::RemTrunc,
                                     ScalarOp::RemFloor, ScalarOp::Shl,      ScalarOp::Shr};
        return b_.op(kOps[roll(6)], get_as(whole, values), get_as(whole, values));
      }
      default: {
        const DType number = is_number(dtype) ? dtype : DType::Float32;
        constexpr ScalarOp kOps[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Max, ScalarOp::Min};
        if (is_wide_float(number) && roll(4) == 0) {
          return b_.op(ScalarOp::Fma, get_as(number, values), get_as(number, values), get_as(number, values));
        }
        if (roll(6) == 0) return b_.op(roll(2) == 0 ? ScalarOp::Neg : ScalarOp::Abs, get_as(number, values));
        return b_.op(kOps[roll(5)], get_as(number, values), get_as(number, values));
      }
    }
  }

  std::vector<ValueId> make_constants() {
    std::vector<ValueId> values;
    for (int i = 0; i < 3; ++i) {
      const DType dtype = pick_dtype();
      const double numbers[] = {0, 1, -1, 0.5, 3, 100, -7};
      values.push_back(b_.constant(dtype, numbers[roll(7)]));
    }
    return values;
  }

  // An index of [rows, length] elements of some layout; `count` is how many elements the buffer needs.
  Affine make_layout(ValueId row, ValueId column, std::int64_t rows, std::int64_t* count) {
    switch (roll(6)) {
      case 0:  // a row for all
        *count = length_;
        return Affine(column);
      case 1:  // a column for all
        *count = rows;
        return Affine(row);
      case 2:  // strided
        *count = rows * length_ * 3 + 1;
        return Affine(row) * (length_ * 3) + Affine(column) * 3 + 1;
      case 3:  // transposed
        *count = rows * length_;
        return Affine(column) * rows + row;
      case 4:  // backwards
        *count = rows * length_;
        return Affine(row) * length_ - column + (length_ - 1);
      default:
        *count = rows * length_;
        return Affine(row) * length_ + column;
    }
  }

  std::vector<ValueId> make_loads(ValueId row, ValueId column, std::int64_t rows, int count) {
    std::vector<ValueId> loads;
    for (int i = 0; i < count; ++i) {
      const DType dtype = pick_dtype();
      std::int64_t elements = 0;
      const Affine index = make_layout(row, column, rows, &elements);
      loads.push_back(b_.load(add_input(dtype, elements), index));
    }
    return loads;
  }

  void store_row_major(ValueId row, ValueId column, std::int64_t rows, ValueId value, bool may_be_strided) {
    const std::int64_t stride = may_be_strided && roll(4) == 0 ? 2 : 1;
    const BufferId buffer = add_output(b_.get_dtype(value), rows * length_ * stride);
    b_.store(buffer, Affine(row) * (length_ * stride) + Affine(column) * stride, value);
  }

  // One element that any iteration may set.
  void set_flag(const std::vector<ValueId>& values) {
    const BufferId flags = add_output(DType::Int32, 2);
    b_.store(flags, static_cast<std::int64_t>(roll(2)), b_.constant(DType::Int32, 1), get_as(DType::Bool, values));
  }

  void make_pointwise() {
    const std::int64_t rows = 1 + roll(3);
    const ValueId param = roll(2) == 0 ? add_param(roll(2) == 0 ? DType::Float64 : DType::Int64) : ValueId();
    const std::vector<ValueId> constants = make_constants();
    const ValueId row = b_.begin_parallel(roll(3) == 0 ? Affine(add_int_param(rows)) : Affine(rows));
    const ValueId column = begin_columns();
    std::vector<ValueId> values = make_loads(row, column, rows, 1 + static_cast<int>(roll(4)));
    const std::vector<ValueId> loads = values;
    values.insert(values.end(), constants.begin(), constants.end());
    if (param.is_valid()) values.push_back(param);
    if (roll(3) == 0) values.push_back(b_.index(Affine(row) * 5 + Affine(column) * 2 + 1));
    grow(values, loads, 1 + static_cast<int>(roll(12)));
    if (roll(3) == 0) {  // masked
      const ValueId mask = get_as(DType::Bool, values);
      std::int64_t elements = 0;
      const DType dtype = pick_dtype();
      const Affine index = make_layout(row, column, rows, &elements);
      values.push_back(b_.load(add_input(dtype, elements), index, mask));
      const ValueId value = values.back();
      const BufferId buffer = add_output(dtype, rows * length_);
      b_.store(buffer, Affine(row) * length_ + column, value, mask);
    }
    if (roll(3) == 0) set_flag(values);
    store_row_major(row, column, rows, values.back(), true);
    if (roll(2) == 0) store_row_major(row, column, rows, pick(values), true);
    b_.end_loop();
    b_.end_loop();
  }

  ValueId add_int_param(std::int64_t value) {
    data_.scalars.push_back(value);
    return b_.add_param(DType::Int64);
  }

  // A vector loop over [0, length) or a part of it, with bounds of some kind.
  ValueId begin_columns() {
    switch (roll(7)) {
      case 0:
        return b_.begin_loop(LoopKind::Vector, 0, add_int_param(length_));
      case 6:  // nothing at all
        return b_.begin_loop_with_limit(LoopKind::Vector, length_, length_ + 64, add_int_param(length_ - 3));
      case 1: {  // a part, by parameters
        const std::int64_t lower = roll(static_cast<std::uint32_t>(length_));
        return b_.begin_loop(LoopKind::Vector, add_int_param(lower), Affine(add_int_param(length_ - lower)) + lower);
      }
      case 2:
        return b_.begin_loop_with_limit(LoopKind::Vector, length_ / 3, add_int_param(length_ + 3), length_);
      case 3:
        return b_.begin_loop_with_limit(LoopKind::Vector, 0, length_ + 8, add_int_param(length_));
      default:
        return b_.begin_loop(LoopKind::Vector, 0, length_);
    }
  }

  ValueId add_param(DType dtype) {
    const ValueId value = b_.add_param(dtype);
    data_.scalars.push_back(dtype == DType::Float64 ? std::bit_cast<std::int64_t>(1.25) : std::int64_t{7});
    return value;
  }

  ValueId add_accumulator(Combine* combine, DType* dtype) {
    *combine = static_cast<Combine>(roll(8));
    if (*combine == Combine::Any || *combine == Combine::All) {
      *dtype = DType::Bool;
    } else {
      do {
        *dtype = pick_dtype();
      } while (!is_number(*dtype));
    }
    return b_.accumulator(*combine, *dtype);
  }

  static bool has_index(Combine combine) { return combine == Combine::ArgMax || combine == Combine::ArgMin; }

  // Passes over a row: each reduces, and what it found is used by the next one.
  void make_rows() {
    const std::int64_t rows = 1 + roll(3);
    const ValueId row = b_.begin_parallel(rows);
    std::vector<ValueId> known = make_constants();
    const int passes = 1 + static_cast<int>(roll(3));
    for (int pass = 0; pass < passes; ++pass) {
      Combine combines[2];
      DType dtypes[2];
      ValueId accumulators[2];
      const int count = 1 + static_cast<int>(roll(2));
      for (int i = 0; i < count; ++i) accumulators[i] = add_accumulator(&combines[i], &dtypes[i]);
      const bool is_split = roll(3) == 0;  // two loops around one accumulator
      const std::int64_t outer = is_split ? 3 : 1;
      ValueId part;
      if (is_split) part = b_.begin_loop(LoopKind::Serial, 0, outer);
      const ValueId column = begin_columns();
      std::vector<ValueId> values = make_loads(row, column, rows, 1 + static_cast<int>(roll(2)));
      const std::vector<ValueId> loads = values;
      values.insert(values.end(), known.begin(), known.end());
      if (is_split) values.push_back(part);
      grow(values, loads, static_cast<int>(roll(5)));
      for (int i = 0; i < count; ++i) {
        const ValueId index = has_index(combines[i]) ? column : ValueId();
        b_.reduce(accumulators[i], get_as(dtypes[i], values), index);
      }
      if (roll(3) == 0) store_row_major(row, column, rows, values.back(), false);
      if (roll(4) == 0) set_flag(values);
      b_.end_loop();
      if (is_split) b_.end_loop();
      for (int i = 0; i < count; ++i) {
        known.push_back(b_.result(accumulators[i]));
        if (has_index(combines[i])) known.push_back(b_.result_index(accumulators[i]));
      }
    }
    const ValueId scalar = known.back();
    const BufferId results = add_output(b_.get_dtype(scalar), rows);
    b_.store(results, row, scalar);
    const ValueId column = b_.begin_loop(LoopKind::Vector, 0, length_);
    std::vector<ValueId> values = make_loads(row, column, rows, 1);
    const std::vector<ValueId> loads = values;
    values.insert(values.end(), known.begin(), known.end());
    grow(values, loads, static_cast<int>(roll(5)));
    store_row_major(row, column, rows, values.back(), true);
    b_.end_loop();
    b_.end_loop();
  }

  // Lanes over columns, a loop over rows inside.
  void make_columns() {
    const std::int64_t rows = 1 + roll(7);
    const std::int64_t block = 24;
    const ValueId unit = b_.begin_parallel((length_ + block - 1) / block);
    const ValueId column =
        b_.begin_loop_with_limit(LoopKind::Vector, Affine(unit) * block, Affine(unit) * block + block, length_);
    Combine combine;
    DType dtype;
    const ValueId accumulator = add_accumulator(&combine, &dtype);
    const ValueId row = b_.begin_loop(LoopKind::Serial, 0, rows);
    std::vector<ValueId> values = make_loads(row, column, rows, 2);
    const std::vector<ValueId> loads = values;
    grow(values, loads, static_cast<int>(roll(5)));
    const ValueId index = has_index(combine) ? row : ValueId();
    const ValueId value = get_as(dtype, values);
    if (roll(2) == 0) {
      const ValueId running = b_.scan(accumulator, value, index);
      store_row_major(row, column, rows, running, false);
    } else {
      b_.reduce(accumulator, value, index);
    }
    b_.end_loop();
    const ValueId result = has_index(combine) && roll(2) == 0 ? b_.result_index(accumulator) : b_.result(accumulator);
    const BufferId output = add_output(b_.get_dtype(result), length_);
    b_.store(output, column, result);
    b_.end_loop();
    b_.end_loop();
  }

  // Rows picked by an index, elements picked by an index, and sums into picked elements.
  void make_indirect() {
    const std::int64_t rows = 1 + roll(3);
    const std::int64_t table_rows = 1 + roll(9);
    const BufferId row_numbers = add_input(DType::Int64, rows, table_rows);
    const BufferId column_numbers = add_input(roll(2) == 0 ? DType::Int64 : DType::Int32, length_, length_);
    const DType dtype = pick_dtype();
    const BufferId table = add_input(dtype, table_rows * length_);
    DType sum_dtype = pick_dtype();
    if (!is_number(sum_dtype)) sum_dtype = DType::Float32;
    const BufferId sums = add_output(sum_dtype, length_);
    const BufferId scattered = add_output(dtype, rows * length_ * 2);
    const ValueId unit = b_.begin_parallel(1);
    (void)unit;
    const ValueId row = b_.begin_loop(LoopKind::Serial, 0, rows);
    const ValueId picked_row = b_.load(row_numbers, row);
    const ValueId column = b_.begin_loop(LoopKind::Vector, 0, length_);
    const ValueId picked_column = b_.cast(b_.load(column_numbers, column), DType::Int64);
    std::vector<ValueId> values{b_.load(table, Affine(picked_row) * length_ + column),
                                b_.load(table, Affine(picked_row) * length_ + picked_column),
                                b_.load(table, Affine(picked_column)), picked_column};
    const std::vector<ValueId> loads = values;
    grow(values, loads, static_cast<int>(roll(5)));
    const ValueId added = get_as(sum_dtype, values);
    const ValueId mask = roll(2) == 0 ? get_as(DType::Bool, values) : ValueId();
    b_.store(sums, picked_column, added, mask, roll(2) == 0 ? StoreMode::AddOrdered : StoreMode::AddAtomic);
    const ValueId doubled = b_.index(Affine(column) * 2 + Affine(row) * (2 * length_));
    b_.store(scattered, Affine(doubled) + (roll(2) == 0 ? 1 : 0), get_as(dtype, values));
    store_row_major(row, column, rows, values.back(), true);
    b_.end_loop();
    b_.end_loop();
    b_.end_loop();
  }

  void make_tile() {
    const std::int64_t rows = 1 + roll(40);
    b_.begin_parallel(1);
    const ValueId row = b_.begin_loop(LoopKind::TileRows, 0, rows);
    const ValueId column = b_.begin_loop(LoopKind::Vector, 0, length_);
    std::vector<ValueId> values;
    for (int i = 0; i < 2; ++i) {
      const DType dtype = pick_dtype();
      const BufferId buffer = add_input(dtype, rows * length_);
      values.push_back(b_.load(buffer, i == 0 ? Affine(column) * rows + row : Affine(row) * length_ + column));
    }
    const std::vector<ValueId> loads = values;
    grow(values, loads, static_cast<int>(roll(4)));
    store_row_major(row, column, rows, values.back(), false);
    const BufferId turned = add_output(b_.get_dtype(values[1]), rows * length_);
    b_.store(turned, Affine(column) * rows + row, values[1]);
    b_.end_loop();
    b_.end_loop();
    b_.end_loop();
  }

  std::mt19937 random_;
  std::int64_t length_;
  KernelBuilder b_;
  KernelData data_;
};

}  // namespace

KernelCase make_random_kernel(std::uint32_t seed, KernelShape shape, std::int64_t length) {
  return Generator(seed, length).make(shape);
}

std::vector<std::uint8_t> make_random_elements(std::mt19937& random, DType dtype, std::int64_t count,
                                               std::int64_t most) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count) * types::get_size_bytes(dtype));
  const double specials[] = {0.0,
                             -0.0,
                             1.0,
                             -1.0,
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN(),
                             1e-41,
                             65504.0,
                             1e30,
                             0.5,
                             1.5,
                             2.5,
                             -3e9};
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t bits = random();
    bits = bits << 32 | random();
    if (types::is_float(dtype)) {
      const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
      const std::uint32_t kind = random() % 16;
      double number = (unit - 0.5) * 8;
      if (kind == 0) number = specials[bits % std::size(specials)];
      if (kind == 1) number *= 1000;
      bits = from_double(dtype, number);
    } else if (most >= 0) {
      bits %= static_cast<std::uint64_t>(most);
    } else if (dtype != DType::Bool && random() % 2 == 0) {
      bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(bits % 17) - 8);
    }
    write_element(dtype, bytes.data(), i, dtype == DType::Bool ? bits & 1 : bits);
  }
  return bytes;
}

namespace {

// Distance in representable numbers; 0 also for two NaNs and for zeros of one sign.
std::int64_t get_distance(DType dtype, std::uint64_t a, std::uint64_t b) {
  const double x = to_double(dtype, a);
  const double y = to_double(dtype, b);
  if (x != x && y != y) return 0;
  if (x != x || y != y) return std::numeric_limits<std::int64_t>::max();
  const auto order = [&](std::uint64_t bits) {
    const std::uint64_t sign = std::uint64_t{1} << (count_bits(dtype) - 1);
    return (bits & sign) != 0 ? -static_cast<std::int64_t>(bits & (sign - 1)) : static_cast<std::int64_t>(bits);
  };
  const std::int64_t distance = order(a) - order(b);
  if (distance == 0 && a != b) return 1;  // zeros of two signs
  return distance < 0 ? -distance : distance;
}

}  // namespace

std::string compare_buffers(const Kernel& kernel, const KernelData& found, const KernelData& expected, int ulps) {
  std::size_t argument = 0;
  for (const Buffer& buffer : kernel.buffers) {
    if (buffer.kind != BufferKind::Argument) continue;
    const std::size_t number = argument++;
    const std::int64_t count =
        static_cast<std::int64_t>(found.buffers[number].size() / types::get_size_bytes(buffer.dtype));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t a = read_element(buffer.dtype, found.buffers[number].data(), i);
      const std::uint64_t b = read_element(buffer.dtype, expected.buffers[number].data(), i);
      if (a == b) continue;
      if (types::is_float(buffer.dtype) && get_distance(buffer.dtype, a, b) <= ulps) continue;
      const std::string text = "buffer " + std::to_string(number) + " of " +
                               std::string(types::get_dtype_name(buffer.dtype)) + " at " + std::to_string(i) + " of " +
                               std::to_string(count) + ": found ";
      if (!types::is_float(buffer.dtype)) {
        return text + std::to_string(static_cast<std::int64_t>(a)) + ", expected " +
               std::to_string(static_cast<std::int64_t>(b));
      }
      return text + std::to_string(to_double(buffer.dtype, a)) + ", expected " +
             std::to_string(to_double(buffer.dtype, b)) + " (bits " + std::to_string(a) + ", " + std::to_string(b) +
             ")";
    }
  }
  return {};
}

}  // namespace reprise::test
