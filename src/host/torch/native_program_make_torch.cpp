// From a program's steps to what the executor runs.
#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "host/torch/boxed_call_impl.h"
#include "host/torch/matrix_product.h"
#include "host/torch/native_program_impl.h"
#include "host/torch/op_info_impl.h"
#include "host/torch/scalar_values_impl.h"
#include "host/torch/trace_tensor_impl.h"

namespace reprise::host {

using program::Argument;
using program::ArgumentKind;
using program::SlotId;
using program::SlotKind;
using program::Step;
using program::StepKind;

namespace {

// PyTorch's functions for these copy all of the memory that their first argument is in: here that is the arena.
constexpr std::string_view kStorageCopies[] = {"aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter",
                                               "aten::as_strided_scatter"};

TraceValueKind number_kind(types::DType dtype) {
  if (dtype == types::DType::Bool) return TraceValueKind::Bool;
  return types::is_integral(dtype) ? TraceValueKind::Int : TraceValueKind::Float;
}

class Maker {
 public:
  Maker(const program::Program& program, NativeProgram::State& made, bool uses_onednn)
      : program_(program), made_(made), uses_onednn_(uses_onednn) {}

  /// "", or why the program cannot run here.
  std::string make() {
    add_slots();
    for (const Step& step : program_.steps) {
      add_step(step);
      if (!failure_.empty()) return failure_;
    }
    find_needed_tensors();
    drop_inputs();
    return failure_;
  }

 private:
  void add_slots() {
    made_.checks = program_.checks;
    for (size_t i = 0; i < program_.slots.size(); i++) {
      const program::Slot& source = program_.slots[i];
      NativeSlot& slot = made_.slots.emplace_back();
      slot.is_tensor = source.is_tensor;
      slot.number_kind = number_kind(source.dtype);
      slot.arena_offset = source.arena_offset;
      if (source.arena_offset >= 0) made_.arena_slots.push_back(static_cast<int32_t>(i));
      if (source.kind == SlotKind::Flags) made_.flags_slot = static_cast<int32_t>(i);
      if (!source.is_tensor) continue;
      if (source.device.kind != types::DeviceKind::Cpu) failure_ = "a tensor on another device than the CPU";
      slot.dtype = static_cast<c10::ScalarType>(torch_number_of(source.dtype));
      slot.element_bytes = types::get_size_bytes(source.dtype);
      for (const program::Size& size : source.sizes) slot.sizes.push_back(size.value);
      for (const program::Size& stride : source.strides) slot.strides.push_back(stride.value);
      slot.offset = source.storage_offset.value;
    }
  }

  static int32_t number_of_slot(SlotId id) { return id.is_valid() ? static_cast<int32_t>(id.index()) : -1; }

  void add_step(const Step& source) {
    NativeStep& step = made_.steps.emplace_back();
    step.kind = source.kind;
    step.slot = number_of_slot(source.slot);
    step.source = number_of_slot(source.source);
    step.first_check = source.first_check;
    step.check_count = source.check_count;
    for (const SlotId id : source.results) step.results.push_back(number_of_slot(id));
    if (source.kind == StepKind::Launch) add_launch(source, step);
    if (source.kind == StepKind::Extern) add_call(source, step);
    if (source.kind == StepKind::Return) {
      for (const int32_t slot : step.results) {
        // Constants are the program's own: nobody may write to them.
        step.is_cloned.push_back(slot >= static_cast<int32_t>(made_.input_count) &&
                                 slot < static_cast<int32_t>(program_.inputs));
      }
    }
  }

  void add_launch(const Step& source, NativeStep& step) {
    step.code = static_cast<int32_t>(source.code.index());
    for (const program::BufferOperand& buffer : source.buffers) {
      const auto width = static_cast<int64_t>(types::get_size_bytes(program_.get(buffer.slot).dtype));
      step.buffers.emplace_back(number_of_slot(buffer.slot), buffer.offset * width);
    }
    for (const program::Word& word : source.words) step.words.emplace_back(number_of_slot(word.slot), word.bits);
    step.units = source.units.value;
    step.unit_work = source.unit_work;
    step.grain = std::max<int64_t>(source.grain, 1);
  }

  // --- library calls

  void add_call(const Step& source, NativeStep& step) {
    if (const auto scalar_op = find_scalar_op(source.op)) {
      step.scalar_op = *scalar_op;
      for (const Argument& argument : source.arguments)
        step.arguments.push_back(make_loader(argument, OpArgKind::Number));
      return;
    }
    const OpInfo* op = find_op(source.op);
    if (op == nullptr) {
      failure_ = "torch has no operator " + source.op;
      return;
    }
    step.handle = entry_of(*op).handle;
    for (const OpReturnInfo& value : op->returns) step.is_list.push_back(value.kind == OpArgKind::TensorList);
    std::vector<Argument> arguments = source.arguments;
    for (const SlotId out : source.outs) {
      Argument& argument = arguments.emplace_back();
      argument.kind = ArgumentKind::Slot;
      argument.number = out.index();
    }
    if (arguments.size() != op->args.size()) {
      failure_ = source.op + " takes " + std::to_string(op->args.size()) + " arguments, the program gives " +
                 std::to_string(arguments.size());
      return;
    }
    for (size_t i = 0; i < arguments.size(); i++) step.arguments.push_back(make_loader(arguments[i], op->args[i].kind));
    if (!arguments.empty() && arguments[0].kind == ArgumentKind::Slot) {
      step.position = StoragePosition::of(*op, made_.slots[static_cast<size_t>(arguments[0].number)].offset);
    }
    if (uses_onednn_ && is_product(source, arguments)) step.product = find_onednn_product();
    step.fill = find_random_fill(source.op);
    step.copies_storage = std::ranges::find(kStorageCopies, source.op) != std::end(kStorageCopies);
  }

  // --- products by oneDNN

  const NativeSlot* find_tensor(const Argument& argument) const {
    if (argument.kind != ArgumentKind::Slot) return nullptr;
    const NativeSlot& slot = made_.slots[static_cast<size_t>(argument.number)];
    return slot.is_tensor ? &slot : nullptr;
  }

  // A matrix, or matrices one behind the other, by rows or (if allowed) by columns, without gaps.
  static bool is_dense(const NativeSlot& slot, bool may_be_transposed) {
    const size_t rank = slot.sizes.size();
    const int64_t rows = slot.sizes[rank - 2], columns = slot.sizes[rank - 1];
    const int64_t row_step = slot.strides[rank - 2], column_step = slot.strides[rank - 1];
    const bool is_by_rows = column_step == 1 && row_step == columns;
    const bool is_by_columns = row_step == 1 && column_step == rows;
    return (is_by_rows || (may_be_transposed && is_by_columns)) && (rank < 3 || slot.strides[0] == rows * columns);
  }

  bool is_product(const Step& source, const std::vector<Argument>& arguments) const {
    if ((source.op != "aten::mm.out" && source.op != "aten::bmm.out") || arguments.size() != 3) return false;
    const NativeSlot *a = find_tensor(arguments[0]), *b = find_tensor(arguments[1]), *out = find_tensor(arguments[2]);
    for (const NativeSlot* slot : {a, b, out}) {
      if (slot == nullptr || slot->dtype != c10::ScalarType::Float || slot->sizes.size() < 2 || slot->sizes.size() > 3)
        return false;
    }
    const size_t rank = a->sizes.size();
    if (!is_dense(*a, true) || !is_dense(*b, true) || !is_dense(*out, false)) return false;
    return is_onednn_product(rank == 3 ? a->sizes[0] : 1, a->sizes[rank - 2], a->sizes[rank - 1], b->sizes.back());
  }

  static c10::IValue constant_of(const Argument& argument) {
    switch (argument.kind) {
      case ArgumentKind::Int:
      case ArgumentKind::Layout:
      case ArgumentKind::MemoryFormat:
        return {argument.number};
      case ArgumentKind::Float:
        return {argument.real};
      case ArgumentKind::Bool:
        return {argument.number != 0};
      case ArgumentKind::String:
        return {argument.text};
      case ArgumentKind::DType:
        return {static_cast<int64_t>(torch_number_of(static_cast<types::DType>(argument.number)))};
      case ArgumentKind::Device: {
        types::Device device;
        device.kind = static_cast<types::DeviceKind>(argument.number >> 16);
        device.index = static_cast<int16_t>(argument.number & 0xffff);
        const auto [type, index] = torch_numbers_of(device);
        return {c10::Device(static_cast<c10::DeviceType>(type), static_cast<int8_t>(index))};
      }
      case ArgumentKind::Complex:
        return {c10::complex<double>(argument.real, std::bit_cast<double>(argument.number))};
      case ArgumentKind::None:
      case ArgumentKind::Slot:
      case ArgumentKind::List:
        break;
    }
    return {};
  }

  template <typename T>
  static c10::IValue constant_list(const Argument& argument) {
    c10::List<T> list;
    for (const Argument& element : argument.elements) list.push_back(constant_of(element).to<T>());
    return list;
  }

  static bool is_number(const Argument& argument) {
    return argument.kind == ArgumentKind::Int || argument.kind == ArgumentKind::Float ||
           argument.kind == ArgumentKind::Bool || argument.kind == ArgumentKind::Complex;
  }

  Loader make_loader(const Argument& argument, OpArgKind kind) {
    Loader loader;
    if (argument.kind == ArgumentKind::Slot) {
      loader.slot = static_cast<int32_t>(argument.number);
      const bool is_wrapped = kind == OpArgKind::Tensor && !program_.slots[static_cast<size_t>(loader.slot)].is_tensor;
      loader.kind = is_wrapped ? Loader::Kind::WrappedSlot : Loader::Kind::Slot;
      return loader;
    }
    if (argument.kind != ArgumentKind::List) {
      loader.constant = constant_of(argument);
      if (kind == OpArgKind::Tensor && is_number(argument)) loader.constant = as_wrapped(loader.constant);
      if (kind == OpArgKind::Float && loader.constant.isInt()) {
        loader.constant = static_cast<double>(loader.constant.toInt());
      }
      return loader;
    }
    bool has_slots = false;
    for (const Argument& element : argument.elements) has_slots |= element.kind == ArgumentKind::Slot;
    if (!has_slots && kind == OpArgKind::BoolList) {
      loader.constant = constant_list<bool>(argument);
      return loader;
    }
    if (!has_slots && kind == OpArgKind::IntList) {
      loader.constant = constant_list<int64_t>(argument);
      return loader;
    }
    loader.kind = list_kind(kind);
    for (const Argument& element : argument.elements) {
      Loader::Element& made = loader.elements.emplace_back();
      if (element.kind == ArgumentKind::Slot) {
        made.slot = static_cast<int32_t>(element.number);
      } else {
        made.constant = constant_of(element);
        if (is_number(element) && (kind == OpArgKind::TensorList || kind == OpArgKind::OptionalTensorList)) {
          made.constant = as_wrapped(made.constant);
        }
      }
    }
    return loader;
  }

  // --- which slots get tensors, and how long inputs live

  template <typename Visit>
  static void visit_slots(const NativeStep& step, Visit&& visit) {
    for (const Loader& loader : step.arguments) {
      if (loader.slot >= 0) visit(loader.slot);
      for (const Loader::Element& element : loader.elements) {
        if (element.slot >= 0) visit(element.slot);
      }
    }
    if (step.kind == StepKind::Copy || step.kind == StepKind::Return) {
      if (step.slot >= 0) visit(step.slot);
      if (step.source >= 0) visit(step.source);
      for (const int32_t result : step.results) {
        if (result >= 0) visit(result);
      }
    }
  }

  void find_needed_tensors() {
    for (size_t i = made_.steps.size(); i-- > 0;) {
      const NativeStep& step = made_.steps[i];
      visit_slots(step, [&](int32_t slot) { need(slot); });
      // The base of a view that is a tensor is one.
      if (step.kind == StepKind::View && made_.slots[static_cast<size_t>(step.slot)].needs_tensor) need(step.source);
    }
  }
  void need(int32_t slot) { made_.slots[static_cast<size_t>(slot)].needs_tensor = true; }

  // Inputs are dropped behind the last step that uses them or a view of them. What the caller keeps lives on.
  void drop_inputs() {
    std::vector<int32_t> roots(made_.slots.size());
    std::vector<int32_t> last_use(made_.slots.size(), -1);
    for (size_t i = 0; i < roots.size(); i++) roots[i] = static_cast<int32_t>(i);
    for (size_t i = 0; i < made_.steps.size(); i++) {
      const NativeStep& step = made_.steps[i];
      const auto use = [&](int32_t slot) {
        last_use[static_cast<size_t>(roots[static_cast<size_t>(slot)])] = static_cast<int32_t>(i);
      };
      if (step.kind == StepKind::View) {
        roots[static_cast<size_t>(step.slot)] = roots[static_cast<size_t>(step.source)];
        use(step.source);
      }
      visit_slots(step, use);
      for (const auto& [slot, offset] : step.buffers) use(slot);
      for (const auto& [slot, bits] : step.words) {
        if (slot >= 0) use(slot);
      }
    }
    for (size_t i = 0; i < roots.size(); i++) {
      const auto root = static_cast<size_t>(roots[i]);
      if (root >= made_.input_count || last_use[root] < 0) continue;
      made_.steps[static_cast<size_t>(last_use[root])].frees.push_back(static_cast<int32_t>(i));
    }
  }

  const program::Program& program_;
  NativeProgram::State& made_;
  const bool uses_onednn_;
  std::string failure_;
};

}  // namespace

base::Result<std::unique_ptr<NativeProgram>> NativeProgram::make(
    const program::Program& program, std::shared_ptr<KernelTable> kernels, std::shared_ptr<ArenaPool> arenas,
    const TraceConstants& constants, std::span<const uint32_t> constant_indices, bool uses_onednn) {
  auto state = std::make_unique<State>();
  state->kernels = std::move(kernels);
  state->arenas = std::move(arenas);
  state->arena_bytes = program.arena_bytes;
  state->input_count = program.inputs - constant_indices.size();
  for (const uint32_t index : constant_indices) state->constants.push_back(constants.values().list[index]);
  if (!program.constants.empty()) {
    return base::Unsupported{base::UnsupportedCode::UntraceableRegion, "a program with constants of its own"};
  }
  if (std::string failure = Maker(program, *state, uses_onednn).make(); !failure.empty()) {
    return base::Unsupported{base::UnsupportedCode::UntraceableRegion, std::move(failure)};
  }
  return std::unique_ptr<NativeProgram>(new NativeProgram(std::move(state)));
}

}  // namespace reprise::host
