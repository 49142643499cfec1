#include "graph/evaluate.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "graph/evaluate_impl.h"
#include "graph/printer.h"

namespace reprise::graph {

using types::DType;

// --- arrays ----------------------------------------------------------------------------------------------------------

Element Array::get(std::int64_t place) const {
  const std::uint64_t word = (*elements)[static_cast<std::size_t>(place)];
  if (types::is_float(dtype)) return make_real(std::bit_cast<double>(word));
  return make_integer(static_cast<std::int64_t>(word));
}

void Array::set(std::int64_t place, Element element) {
  std::uint64_t& word = (*elements)[static_cast<std::size_t>(place)];
  switch (dtype) {
    case DType::Float64:
      word = std::bit_cast<std::uint64_t>(element.as_real());
      return;
    case DType::Float32:
      word = std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<float>(element.as_real())));
      return;
    case DType::Int64:
      word = static_cast<std::uint64_t>(element.as_integer());
      return;
    case DType::Int32:
      word = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(element.as_integer())});
      return;
    case DType::Bool:
      word = element.as_bool();
      return;
    default:
      REPRISE_UNREACHABLE("arrays of dtype " + std::string(types::get_dtype_name(dtype)));
  }
}

std::int64_t Array::get_numel() const {
  std::int64_t numel = 1;
  for (const std::int64_t size : sizes) numel *= size;
  return numel;
}

std::vector<std::int64_t> Array::list_places() const {
  std::vector<std::int64_t> places = {offset};
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    std::vector<std::int64_t> longer;
    longer.reserve(places.size() * static_cast<std::size_t>(sizes[d]));
    for (const std::int64_t place : places) {
      for (std::int64_t i = 0; i < sizes[d]; ++i) longer.push_back(place + i * strides[d]);
    }
    places = std::move(longer);
  }
  return places;
}

namespace {

Array make_geometry(const TensorMeta& meta) {
  Array array;
  for (const sym::Int size : meta.sizes()) array.sizes.push_back(size.get_constant());
  for (const sym::Int stride : meta.strides()) array.strides.push_back(stride.get_constant());
  array.offset = meta.offset.get_constant();
  array.dtype = meta.dtype;
  return array;
}

std::int64_t get_extent(const Array& array) {
  std::int64_t extent = array.offset + 1;
  for (std::size_t d = 0; d < array.sizes.size(); ++d) {
    if (array.sizes[d] == 0) return array.offset;
    extent += (array.sizes[d] - 1) * array.strides[d];
  }
  return extent;
}

bool is_known_dtype(DType dtype) {
  return dtype == DType::Float64 || dtype == DType::Float32 || dtype == DType::Int64 || dtype == DType::Int32 ||
         dtype == DType::Bool;
}

// Row-major contiguous copy of the elements.
std::vector<Element> list_elements(const Array& array) {
  std::vector<Element> elements;
  for (const std::int64_t place : array.list_places()) elements.push_back(array.get(place));
  return elements;
}

// `array` seen with other sizes: repeated along dimensions of size 1 and in front.
Array broadcast(const Array& array, const std::vector<std::int64_t>& sizes) {
  Array wide = array;
  wide.sizes = sizes;
  wide.strides.assign(sizes.size(), 0);
  const std::size_t first = sizes.size() - array.sizes.size();
  for (std::size_t d = 0; d < array.sizes.size(); ++d) {
    if (array.sizes[d] == sizes[first + d]) wide.strides[first + d] = array.strides[d];
  }
  return wide;
}

// An error of the evaluator; never leaves this file.
struct Failure {
  std::string text;
};

}  // namespace

Array Array::make(const TensorMeta& meta) {
  Array array = make_geometry(meta);
  array.elements = std::make_shared<std::vector<std::uint64_t>>(static_cast<std::size_t>(get_extent(array)), 0);
  return array;
}

Array Array::clone() const {
  Array copy = *this;
  copy.elements = std::make_shared<std::vector<std::uint64_t>>(*elements);
  return copy;
}

// --- the walk --------------------------------------------------------------------------------------------------------

namespace {

class Walker {
 public:
  Walker(const Graph& graph, std::uint64_t first_draw)
      : graph_(graph), values_(graph.values.size()), draws_(first_draw) {}

  void set(ValueId id, Datum datum) { values_[id.index()] = std::move(datum); }
  Datum get(ValueId id) const { return id.is_valid() ? values_[id.index()] : Datum{}; }
  std::uint64_t draws() const { return draws_; }

  void run(const Node& node) {
    node_ = &node;
    // Arguments that are written: in the functional form copies, which are the new values.
    std::size_t next_new = 0;
    replaced_.clear();
    for (std::size_t i = 0; i < node.args.size(); ++i) {
      if (i >= 64 || (node.mut >> i & 1) == 0 || node.new_values.empty()) continue;
      for_each_value(node.args[i], [&](ValueId id) {
        const ValueId created = node.new_values[next_new++];
        Array copy = Array::make(graph_.get_meta(created));
        assign(copy, array_of(id));
        replaced_.push_back({id, copy});
        set(created, {copy});
      });
    }
    if (run_view() || run_lists() || run_random() || run_scalar()) return;
    if (node.mut != 0) {
      run_in_place();
    } else {
      run_op(node.op, node.args, node.outs);
    }
  }

  static void assign(Array& to, const Array& from) {
    const std::vector<std::int64_t> places = to.list_places();
    const std::vector<Element> elements = list_elements(broadcast(from, to.sizes));
    for (std::size_t i = 0; i < places.size(); ++i) to.set(places[i], elements[i]);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw Failure{why + ": " + print_node(graph_, *node_)}; }

  const Array& array_of(ValueId id) const {
    const Array* array = std::get_if<Array>(&values_[id.index()].value);
    if (array == nullptr) fail("%" + std::to_string(id.index()) + " is no array");
    return *array;
  }
  // A written argument is its new value.
  Array array_of(const Arg& arg) const {
    if (!arg.is_value()) fail("an argument is no array");
    for (const auto& [id, copy] : replaced_) {
      if (id == arg.get_value()) return copy;
    }
    return array_of(arg.get_value());
  }
  Element number_of(const Arg& arg) const {
    switch (arg.kind()) {
      case ArgKind::Int:
        return make_integer(arg.get_int().get_constant());
      case ArgKind::LowInt:
        return make_integer(arg.get_low_int());
      case ArgKind::Float:
        return make_real(arg.get_float());
      case ArgKind::Bool:
        return make_integer(arg.get_bool());
      case ArgKind::Value:
        if (const Element* element = std::get_if<Element>(&values_[arg.get_value().index()].value)) return *element;
        [[fallthrough]];
      default:
        fail("an argument is no number");
    }
  }
  std::int64_t int_of(std::size_t i) const { return number_of(node_->args[i]).as_integer(); }
  std::vector<std::int64_t> ints_of(const Arg& arg) const {
    std::vector<std::int64_t> ints;
    if (arg.is_int()) return {arg.get_int().get_constant()};
    if (!arg.is_list()) return ints;
    for (const Arg& element : arg.get_list()) ints.push_back(element.get_int().get_constant());
    return ints;
  }
  static std::int64_t wrap(std::int64_t dim, std::size_t rank) {
    return dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim;
  }

  // A new array for a result.
  Array make_out(ValueId id) {
    if (!is_known_dtype(graph_.get_meta(id).dtype)) fail("a dtype that is not known");
    Array out = Array::make(graph_.get_meta(id));
    set(id, {out});
    return out;
  }

  bool run_view() {
    const Node& node = *node_;
    const bool is_resize = node.op == OpId::resize_;
    if (!is_view(node.op) && !is_resize) return false;
    const Array base = array_of(node.args[0]);
    const TensorMeta& base_meta = graph_.get_meta(node.args[0].get_value());
    for (const ValueId id : node.outs) {
      if (!id.is_valid() || (is_resize && id == node.args[0].get_value())) continue;
      const TensorMeta& meta = graph_.get_meta(id);
      if (meta.flags != base_meta.flags || meta.dtype != base_meta.dtype) fail("a view that is not known");
      Array view = make_geometry(meta);
      view.elements = base.elements;
      view.offset += base.offset - base_meta.offset.get_constant();
      if (is_resize) view.elements->resize(std::max<std::size_t>(view.elements->size(), get_extent(view)), 0);
      set(id, {view});
    }
    return true;
  }

  // Each element of a list op as the op on tensors.
  bool run_lists() {
    const Node& node = *node_;
    if (get_op_info(node.op).family != OpFamily::Foreach) return false;
    std::string_view name = graph_.context->get_op_name(node.op);
    constexpr std::string_view kPrefix = "aten::_foreach_";
    if (!name.starts_with(kPrefix)) fail("a list op that is not known");
    std::string plain = "aten::" + std::string(name.substr(kPrefix.size()));
    // The overloads of lists have other names.
    const std::size_t dot = plain.find('.');
    std::string overload = dot == plain.npos ? "" : plain.substr(dot + 1);
    std::string base = plain.substr(0, dot);
    const bool is_in_place = base.back() == '_';
    if (is_in_place) base.pop_back();
    std::optional<OpId> op;
    for (const std::string& candidate : {overload == "List"               ? base + ".Tensor"
                                         : overload.starts_with("Scalar") ? base + ".Scalar"
                                                                          : base + "." + overload,
                                         base, base + ".Tensor_Scalar", base + ".Tensor_Tensor"}) {
      if (!op) op = find_known_op(candidate);
    }
    if (base == "aten::zero" || base == "aten::copy") op = base == "aten::zero" ? OpId::zero_ : OpId::copy_;
    if (!op || !node.args[0].is_list()) fail("a list op that is not known");
    for (std::size_t i = 0; i < node.args[0].get_list().size(); ++i) {
      std::vector<Arg> args;
      for (const Arg& arg : node.args) args.push_back(arg.is_list() ? arg.get_list()[i] : arg);
      const bool is_sum = *op == OpId::add_Scalar || *op == OpId::sub_Scalar;
      if (is_sum && args.size() == 2) args.push_back(Arg::make_int(1));
      if (is_in_place) {
        Array self = array_of(args[0]);
        write_in_place(*op, args, self);
      } else {
        run_op(*op, args, node.outs.subspan(i, 1));
      }
    }
    return true;
  }

  Element draw() { return make_real(static_cast<double>(base::hash_combine(7, draws_++) >> 11) * 0x1p-53); }

  bool run_random() {
    const Node& node = *node_;
    if (node.op == OpId::rng_get) {
      set(node.outs[0], {make_integer(static_cast<std::int64_t>(draws_))});
      return true;
    }
    if (node.op == OpId::rng_set) {
      draws_ = static_cast<std::uint64_t>(number_of(node.args[0]).integer);
      return true;
    }
    if (get_op_info(node.op).family != OpFamily::Random) return false;
    const bool is_bernoulli = node.op == OpId::bernoulli__float || node.op == OpId::bernoulli_p;
    const bool is_uniform = node.op == OpId::uniform_ || node.op == OpId::rand || node.op == OpId::rand_like;
    if (!is_bernoulli && !is_uniform) fail("a random op that is not known");
    Array out = node.mut != 0 ? array_of(node.args[0]) : make_out(node.outs[0]);
    const double p = is_bernoulli ? number_of(node.args[1]).as_real() : 0;
    for (const std::int64_t place : out.list_places()) {
      const Element element = draw();
      out.set(place, is_bernoulli ? make_integer(element.real < p) : element);
    }
    return true;
  }

  bool run_scalar() {
    const Node& node = *node_;
    if (get_op_info(node.op).family != OpFamily::Scalar) return false;
    if (node.op == OpId::scalar_assert || node.op == OpId::_assert_async_msg) return true;
    if (node.op == OpId::scalar_item || node.op == OpId::_local_scalar_dense) {
      const Array array = array_of(node.args[0]);
      set(node.outs[0], {array.get(array.offset)});
      return true;
    }
    std::vector<Element> operands;
    for (const Arg& arg : node.args) operands.push_back(number_of(arg));
    const std::optional<Element> result = evaluate_scalar(node.op, operands);
    if (!result) fail("a scalar op that is not known");
    set(node.outs[0], {*result});
    return true;
  }

  void run_in_place() {
    const Node& node = *node_;
    if (node.mut != 1 || !node.args[0].is_value()) fail("an op that writes and is not known");
    Array self = array_of(node.args[0]);
    write_in_place(node.op, node.args, self);
  }

  void write_in_place(OpId op, std::span<const Arg> args, Array& self) {
    if (op == OpId::copy_) {
      const Array from = array_of(args[1]).clone();  // it may overlap
      assign(self, from);
      return;
    }
    if (op == OpId::zero_) {
      for (const std::int64_t place : self.list_places()) self.set(place, make_integer(0));
      return;
    }
    const OpId functional = find_functional_op(op).value_or(op);
    Array result = self;
    result.elements = std::make_shared<std::vector<std::uint64_t>>(*self.elements);
    run_pointwise(functional, args, result);
    const std::vector<Element> elements = list_elements(result);
    const std::vector<std::int64_t> places = self.list_places();
    for (std::size_t i = 0; i < places.size(); ++i) self.set(places[i], elements[i]);
  }

  void run_pointwise(OpId op, std::span<const Arg> args, Array& out) {
    constexpr std::size_t kMost = 8;
    std::vector<std::vector<Element>> operands;
    std::array<bool, kMost> present{};
    bool is_float = types::is_float(out.dtype);
    for (const Arg& arg : args.first(std::min(args.size(), kMost))) {
      present[operands.size()] = !arg.is_none();
      const bool is_array = arg.is_value() && std::holds_alternative<Array>(values_[arg.get_value().index()].value);
      if (is_array) {
        const Array array = array_of(arg);
        is_float = is_float || types::is_float(array.dtype);
        operands.push_back(list_elements(broadcast(array, out.sizes)));
      } else if (arg.is_number() || arg.is_value()) {
        operands.push_back({number_of(arg)});
      } else {
        operands.push_back({make_integer(0)});
      }
    }
    const std::vector<std::int64_t> places = out.list_places();
    std::vector<Element> at(operands.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      for (std::size_t k = 0; k < operands.size(); ++k) at[k] = operands[k][operands[k].size() == 1 ? 0 : i];
      const std::optional<Element> result =
          evaluate_pointwise(op, at, std::span<const bool>(present.data(), at.size()), is_float);
      if (!result) fail("an op that is not known");
      out.set(places[i], *result);
    }
  }

  void run_op(OpId op, std::span<const Arg> args, std::span<const ValueId> outs) {
    if (get_op_info(op).family == OpFamily::Pointwise) {
      Array out = make_out(outs[0]);
      run_pointwise(op, args, out);
      return;
    }
    switch (op) {
      case OpId::clone:
      case OpId::_to_copy:
      case OpId::view_copy: {
        Array out = make_out(outs[0]);
        Array from = array_of(args[0]);
        const std::vector<Element> elements = list_elements(from);
        const std::vector<std::int64_t> places = out.list_places();
        for (std::size_t i = 0; i < places.size(); ++i) out.set(places[i], elements[i]);
        return;
      }
      case OpId::empty_memory_format:
      case OpId::empty_like:
      case OpId::empty_strided:
      case OpId::new_empty:
      case OpId::new_empty_strided:
      case OpId::zeros:
      case OpId::zeros_like:
      case OpId::new_zeros:
        make_out(outs[0]);
        return;
      case OpId::ones:
      case OpId::ones_like:
      case OpId::new_ones:
        return fill(outs[0], make_integer(1));
      case OpId::full:
      case OpId::full_like:
        return fill(outs[0], number_of(args[1]));
      case OpId::scalar_tensor:
        return fill(outs[0], number_of(args[0]));
      case OpId::arange:
      case OpId::arange_start:
      case OpId::arange_start_step:
        return run_arange(op, args, outs[0]);
      case OpId::slice_scatter:
      case OpId::select_scatter:
      case OpId::as_strided_scatter:
      case OpId::diagonal_scatter:
        return run_scatter(op, args, outs[0]);
      case OpId::sum:
      case OpId::sum_dim_IntList:
      case OpId::mean:
      case OpId::mean_dim:
      case OpId::amax:
        return run_reduction(op, args, outs[0]);
      case OpId::mm:
      case OpId::bmm:
      case OpId::addmm:
        return run_product(op, args, outs[0]);
      case OpId::cat:
        return run_cat(args, outs[0]);
      case OpId::stack:
        return run_stack(args, outs[0]);
      case OpId::select_backward: {
        Array part = make_out(outs[0]);
        const auto d = static_cast<std::size_t>(wrap(number_of(args[2]).integer, part.sizes.size()));
        take_part(part, d, wrap(number_of(args[3]).integer, static_cast<std::size_t>(part.sizes[d])));
        return assign(part, array_of(args[0]));
      }
      case OpId::index_select:
        return run_index_select(args, outs[0]);
      default:
        fail("an op that is not known");
    }
  }

  void fill(ValueId id, Element element) {
    Array out = make_out(id);
    for (const std::int64_t place : out.list_places()) out.set(place, element);
  }

  void run_arange(OpId op, std::span<const Arg> args, ValueId id) {
    Array out = make_out(id);
    const Element start = op == OpId::arange ? make_integer(0) : number_of(args[0]);
    const Element step = op == OpId::arange_start_step ? number_of(args[2]) : make_integer(1);
    std::int64_t i = 0;
    for (const std::int64_t place : out.list_places()) {
      out.set(place, start.is_float || step.is_float
                         ? make_real(start.as_real() + static_cast<double>(i) * step.as_real())
                         : make_integer(start.integer + i * step.integer));
      ++i;
    }
  }

  void run_scatter(OpId op, std::span<const Arg> args, ValueId id) {
    Array out = make_out(id);
    assign(out, array_of(args[0]));
    Array part = out;
    if (op == OpId::as_strided_scatter) {
      // On the storage of the argument as eager lays it out: the result has the same geometry.
      part.sizes = ints_of(args[2]);
      part.strides = ints_of(args[3]);
      part.offset = args[4].is_none() ? out.offset : number_of(args[4]).integer;
    } else if (op == OpId::diagonal_scatter) {
      const std::int64_t shift = number_of(args[2]).integer;
      const auto a = static_cast<std::size_t>(wrap(number_of(args[3]).integer, out.sizes.size()));
      const auto b = static_cast<std::size_t>(wrap(number_of(args[4]).integer, out.sizes.size()));
      const std::int64_t rows = out.sizes[a] + std::min<std::int64_t>(shift, 0);
      const std::int64_t columns = out.sizes[b] - std::max<std::int64_t>(shift, 0);
      part.offset += shift < 0 ? -shift * out.strides[a] : shift * out.strides[b];
      part.sizes.push_back(std::max<std::int64_t>(std::min(rows, columns), 0));
      part.strides.push_back(out.strides[a] + out.strides[b]);
      for (const std::size_t d : {std::max(a, b), std::min(a, b)}) {
        part.sizes.erase(part.sizes.begin() + static_cast<std::ptrdiff_t>(d));
        part.strides.erase(part.strides.begin() + static_cast<std::ptrdiff_t>(d));
      }
    } else {
      const auto d = static_cast<std::size_t>(wrap(number_of(args[2]).integer, out.sizes.size()));
      if (op == OpId::select_scatter) {
        part.offset += wrap(number_of(args[3]).integer, static_cast<std::size_t>(out.sizes[d])) * out.strides[d];
        part.sizes.erase(part.sizes.begin() + static_cast<std::ptrdiff_t>(d));
        part.strides.erase(part.strides.begin() + static_cast<std::ptrdiff_t>(d));
      } else {
        const std::int64_t size = out.sizes[d];
        const auto clamp = [&](const Arg& arg, std::int64_t otherwise) {
          if (arg.is_none()) return otherwise;
          return std::min(std::max<std::int64_t>(wrap(number_of(arg).integer, static_cast<std::size_t>(size)), 0),
                          size);
        };
        const std::int64_t start = clamp(args[3], 0);
        const std::int64_t end = std::max(clamp(args[4], size), start);
        const std::int64_t step = number_of(args[5]).integer;
        part.offset += start * out.strides[d];
        part.sizes[d] = (end - start + step - 1) / step;
        part.strides[d] *= step;
      }
    }
    assign(part, array_of(args[1]));
  }

  void run_reduction(OpId op, std::span<const Arg> args, ValueId id) {
    const Array from = array_of(args[0]);
    Array out = make_out(id);
    const bool has_dims = op == OpId::sum_dim_IntList || op == OpId::mean_dim || op == OpId::amax;
    std::vector<bool> is_reduced(from.sizes.size(), !has_dims || ints_of(args[1]).empty());
    if (has_dims) {
      for (const std::int64_t dim : ints_of(args[1])) {
        if (!from.sizes.empty()) is_reduced[static_cast<std::size_t>(wrap(dim, from.sizes.size()))] = true;
      }
    }
    // The result seen with the input's sizes.
    Array wide = out;
    wide.sizes = from.sizes;
    wide.strides.assign(from.sizes.size(), 0);
    std::int64_t count = 1;
    std::size_t next = 0;
    const bool keeps = has_dims && out.sizes.size() == from.sizes.size();
    for (std::size_t d = 0; d < from.sizes.size(); ++d) {
      if (is_reduced[d]) {
        count *= from.sizes[d];
        if (keeps) ++next;
      } else {
        wide.strides[d] = out.strides[next++];
      }
    }
    // Sums are kept in double.
    std::vector<double> sums(out.elements->size(), op == OpId::amax ? -INFINITY : 0.0);
    std::vector<std::int64_t> counts(out.elements->size(), 0);
    const std::vector<std::int64_t> places = wide.list_places();
    const std::vector<Element> elements = list_elements(from);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::size_t place = static_cast<std::size_t>(places[i]);
      if (op == OpId::amax) {
        sums[place] = std::isnan(elements[i].as_real()) ? NAN : std::max(sums[place], elements[i].as_real());
      } else if (elements[i].is_float) {
        sums[place] += elements[i].real;
      } else {
        counts[place] += elements[i].integer;
      }
    }
    const bool is_mean = op == OpId::mean || op == OpId::mean_dim;
    for (const std::int64_t place : out.list_places()) {
      const std::size_t at = static_cast<std::size_t>(place);
      if (!types::is_float(from.dtype) && op != OpId::amax) {
        out.set(place, make_integer(counts[at]));
      } else {
        out.set(place, make_real(is_mean ? sums[at] / static_cast<double>(count) : sums[at]));
      }
    }
  }

  void run_product(OpId op, std::span<const Arg> args, ValueId id) {
    const Array a = array_of(args[op == OpId::addmm ? 1 : 0]);
    const Array b = array_of(args[op == OpId::addmm ? 2 : 1]);
    Array out = make_out(id);
    const bool is_batched = op == OpId::bmm;
    const std::size_t r = is_batched ? 1 : 0;
    const double beta = op == OpId::addmm ? number_of(args[3]).as_real() : 0;
    const double alpha = op == OpId::addmm ? number_of(args[4]).as_real() : 1;
    Array added;
    if (op == OpId::addmm) added = broadcast(array_of(args[0]), out.sizes);
    for (std::int64_t n = 0; n < (is_batched ? out.sizes[0] : 1); ++n) {
      for (std::int64_t i = 0; i < out.sizes[r]; ++i) {
        for (std::int64_t k = 0; k < out.sizes[r + 1]; ++k) {
          double sum = 0;
          for (std::int64_t j = 0; j < a.sizes[r + 1]; ++j) {
            const std::int64_t at =
                a.offset + (is_batched ? n * a.strides[0] : 0) + i * a.strides[r] + j * a.strides[r + 1];
            const std::int64_t bt =
                b.offset + (is_batched ? n * b.strides[0] : 0) + j * b.strides[r] + k * b.strides[r + 1];
            sum += a.get(at).as_real() * b.get(bt).as_real();
          }
          if (op == OpId::addmm) {
            const Element bias = added.get(added.offset + i * added.strides[0] + k * added.strides[1]);
            sum = alpha * sum + (beta == 0 ? 0 : beta * bias.as_real());
          }
          const std::int64_t place =
              out.offset + (is_batched ? n * out.strides[0] : 0) + i * out.strides[r] + k * out.strides[r + 1];
          out.set(place, make_real(sum));
        }
      }
    }
  }

  void run_cat(std::span<const Arg> args, ValueId id) {
    Array out = make_out(id);
    const auto d = static_cast<std::size_t>(wrap(number_of(args[1]).integer, out.sizes.size()));
    std::int64_t start = 0;
    for (const Arg& arg : args[0].get_list()) {
      const Array from = array_of(arg);
      if (from.sizes.size() == 1 && from.sizes[0] == 0) continue;
      Array part = out;
      part.offset += start * out.strides[d];
      part.sizes[d] = from.sizes[d];
      assign(part, from);
      start += from.sizes[d];
    }
  }

  // Place `index` of dimension d, which goes.
  static void take_part(Array& array, std::size_t d, std::int64_t index) {
    array.offset += index * array.strides[d];
    array.sizes.erase(array.sizes.begin() + static_cast<std::ptrdiff_t>(d));
    array.strides.erase(array.strides.begin() + static_cast<std::ptrdiff_t>(d));
  }

  void run_stack(std::span<const Arg> args, ValueId id) {
    const Array out = make_out(id);
    const auto d = static_cast<std::size_t>(wrap(number_of(args[1]).integer, out.sizes.size()));
    std::int64_t i = 0;
    for (const Arg& arg : args[0].get_list()) {
      Array part = out;
      take_part(part, d, i++);
      assign(part, array_of(arg));
    }
  }

  void run_index_select(std::span<const Arg> args, ValueId id) {
    const Array from = array_of(args[0]);
    Array out = make_out(id);
    const auto d = static_cast<std::size_t>(wrap(number_of(args[1]).integer, out.sizes.size()));
    const std::vector<Element> indices = list_elements(array_of(args[2]));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i].integer < 0 || indices[i].integer >= from.sizes[d]) fail("index out of range in self");
      Array to = out, part = from;
      to.offset += static_cast<std::int64_t>(i) * out.strides[d];
      part.offset += indices[i].integer * from.strides[d];
      to.sizes[d] = part.sizes[d] = 1;
      assign(to, part);
    }
  }

  const Graph& graph_;
  std::vector<Datum> values_;
  const Node* node_ = nullptr;
  std::vector<std::pair<ValueId, Array>> replaced_;
  std::uint64_t draws_;
};

}  // namespace

Evaluation evaluate(const Graph& graph, std::vector<Datum>& inputs, const std::vector<Datum>& constants,
                    std::uint64_t first_draw) {
  Evaluation result;
  Walker walker(graph, first_draw);
  try {
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) walker.set(graph.inputs[i].value, inputs[i]);
    for (std::size_t i = 0; i < graph.constants.size(); ++i) walker.set(graph.constants[i].value, constants[i]);
    for (const Node& node : graph.nodes) walker.run(node);
  } catch (const Failure& failure) {
    result.error = failure.text;
    return result;
  }
  // Outputs that are not aliases are read before effects; effects read values, not inputs.
  const auto take = [&](ValueId id) {
    Datum datum = walker.get(id);
    if (const Array* array = std::get_if<Array>(&datum.value)) return Datum{array->clone()};
    return datum;
  };
  for (const Output& output : graph.outputs) {
    result.outputs.push_back(output.kind == OutputKind::Value ? take(output.value) : Datum{});
  }
  for (const Gradient& gradient : graph.gradients) result.gradients.push_back(take(gradient.value));
  for (const ValueId id : graph.saved) result.saved.push_back(take(id));
  std::vector<Datum> written;
  for (const Effect& effect : graph.effects) written.push_back(take(effect.value));
  for (std::size_t i = 0; i < graph.effects.size(); ++i) {
    if (graph.effects[i].kind != EffectKind::Copy) continue;
    Array& input = std::get<Array>(inputs[graph.effects[i].input].value);
    Walker::assign(input, std::get<Array>(written[i].value));
  }
  // Outputs that are inputs or views, after the effects.
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Output& output = graph.outputs[i];
    if (output.kind == OutputKind::Value || output.kind == OutputKind::None) continue;
    const bool is_input = output.kind == OutputKind::Input || output.kind == OutputKind::ViewOfInput;
    Datum base = is_input ? inputs[output.index] : result.outputs[output.index];
    if (output.kind == OutputKind::ViewOfInput || output.kind == OutputKind::ViewOfOutput) {
      Array view = make_geometry(output.meta);
      const Array& whole = std::get<Array>(base.value);
      const TensorMeta& base_meta =
          is_input ? graph.get_meta(graph.inputs[output.index].value) : graph.outputs[output.index].meta;
      view.elements = whole.elements;
      view.offset += whole.offset - base_meta.offset.get_constant();
      base = {view};
    }
    if (const Array* array = std::get_if<Array>(&base.value)) base = {array->clone()};
    result.outputs[i] = base;
  }
  result.draw_count = walker.draws() - first_draw;
  return result;
}

std::vector<Datum> make_inputs(const Graph& graph, std::uint64_t seed) {
  std::vector<Datum> inputs;
  std::vector<std::shared_ptr<std::vector<std::uint64_t>>> storages(graph.context->get_storage_count());
  std::uint64_t next = seed;
  for (const Input& input : graph.inputs) {
    const Value& value = graph.get_value(input.value);
    const auto draw = [&] { return base::hash_combine(0x5eed, next++); };
    if (value.kind != ValueKind::Tensor) {
      inputs.push_back({value.kind == ValueKind::Float ? make_real(static_cast<double>(draw() % 17) / 4 - 2)
                                                       : make_integer(static_cast<std::int64_t>(draw() % 5))});
      continue;
    }
    Array array = Array::make(value.meta);
    auto& shared = storages[value.meta.storage.index()];
    if (shared == nullptr) shared = array.elements;
    const std::size_t filled = shared == array.elements ? 0 : shared->size();
    if (shared->size() < array.elements->size()) shared->resize(array.elements->size(), 0);
    array.elements = shared;
    for (std::size_t place = filled; place < shared->size(); ++place) {
      const std::uint64_t bits = draw();
      const bool is_float = types::is_float(array.dtype);
      array.set(static_cast<std::int64_t>(place), is_float ? make_real(static_cast<double>(bits % 4096) / 512 - 4)
                                                           : make_integer(static_cast<std::int64_t>(bits % 7) - 3));
    }
    inputs.push_back({array});
  }
  return inputs;
}

std::vector<Datum> clone_inputs(const Graph& graph, const std::vector<Datum>& inputs) {
  std::vector<Datum> copies = inputs;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    Array* array = std::get_if<Array>(&copies[i].value);
    if (array == nullptr) continue;
    array->elements = std::make_shared<std::vector<std::uint64_t>>(*array->elements);
    for (std::size_t k = 0; k < i; ++k) {
      const Array* before = std::get_if<Array>(&inputs[k].value);
      if (before != nullptr && before->elements == std::get<Array>(inputs[i].value).elements)
        array->elements = std::get<Array>(copies[k].value).elements;
    }
  }
  (void)graph;
  return copies;
}

namespace {

template <class Equal>
std::string compare_with(const Datum& a, const Datum& b, Equal&& equal) {
  if (a.value.index() != b.value.index()) return "one is an array, the other is not";
  if (const Element* x = std::get_if<Element>(&a.value)) {
    const Element& y = std::get<Element>(b.value);
    return equal(*x, y) ? "" : std::to_string(x->as_real()) + " and " + std::to_string(y.as_real());
  }
  const Array* x = std::get_if<Array>(&a.value);
  if (x == nullptr) return "";
  const Array& y = std::get<Array>(b.value);
  if (x->dtype != y.dtype) return "dtypes differ";
  if (x->sizes != y.sizes) return "sizes differ";
  const std::vector<Element> p = list_elements(*x);
  const std::vector<Element> q = list_elements(y);
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (!equal(p[i], q[i]))
      return "element " + std::to_string(i) + ": " + std::to_string(p[i].as_real()) + " and " +
             std::to_string(q[i].as_real());
  }
  return "";
}

}  // namespace

std::string compare(const Datum& a, const Datum& b) {
  return compare_with(a, b, [](const Element& x, const Element& y) {
    if (x.is_float != y.is_float) return false;
    if (!x.is_float) return x.integer == y.integer;
    return (std::isnan(x.real) && std::isnan(y.real)) ||
           std::bit_cast<std::uint64_t>(x.real) == std::bit_cast<std::uint64_t>(y.real);
  });
}

std::string compare_loosely(const Datum& a, const Datum& b, double tolerance) {
  return compare_with(a, b, [&](const Element& x, const Element& y) {
    const double p = x.as_real(), q = y.as_real();
    return (std::isnan(p) && std::isnan(q)) || p == q || std::fabs(p - q) <= tolerance * (1 + std::fabs(p));
  });
}

}  // namespace reprise::graph
