#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "host/torch/op_info_impl.h"

namespace reprise::host {

namespace {

struct HiddenMutation {
  std::string_view name;
  int first, second, training;
};
constexpr HiddenMutation kHiddenMutations[] = {
#define X(name, first, second, training) {"aten::" #name, first, second, training},
#include "host/torch/hidden_mutations.def"
};

// Names of operators that draw random numbers contain one of these; their backward formulas do not draw.
constexpr std::string_view kRandomWords[] = {"bernoulli",   "rand",      "normal", "uniform", "dropout", "multinomial",
                                             "exponential", "geometric", "cauchy", "poisson", "rrelu",   "binomial"};

OpArgKind kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return OpArgKind::Tensor;
    case c10::TypeKind::NumberType:
      return OpArgKind::Number;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return OpArgKind::Int;
    case c10::TypeKind::ScalarTypeType:
      return OpArgKind::DType;
    case c10::TypeKind::LayoutType:
      return OpArgKind::Layout;
    case c10::TypeKind::MemoryFormatType:
      return OpArgKind::MemoryFormat;
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      return OpArgKind::Float;
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
      return OpArgKind::Bool;
    case c10::TypeKind::DeviceObjType:
      return OpArgKind::Device;
    case c10::TypeKind::StringType:
      return OpArgKind::Text;
    case c10::TypeKind::GeneratorType:
      return OpArgKind::Generator;
    case c10::TypeKind::OptionalType:
      return kind_of(*static_cast<const c10::OptionalType&>(type).getElementType());
    case c10::TypeKind::ListType: {
      const c10::Type& element = *static_cast<const c10::ListType&>(type).getElementType();
      const bool is_optional = element.kind() == c10::TypeKind::OptionalType;
      switch (kind_of(element)) {
        case OpArgKind::Tensor:
          return is_optional ? OpArgKind::OptionalTensorList : OpArgKind::TensorList;
        case OpArgKind::Number:
          return OpArgKind::NumberList;
        case OpArgKind::Int:
          return OpArgKind::IntList;
        case OpArgKind::Float:
          return OpArgKind::FloatList;
        case OpArgKind::Bool:
          return OpArgKind::BoolList;
        default:
          return OpArgKind::Other;
      }
    }
    default:
      return OpArgKind::Other;
  }
}

bool is_tensor_kind(OpArgKind kind) {
  return kind == OpArgKind::Tensor || kind == OpArgKind::TensorList || kind == OpArgKind::OptionalTensorList;
}

void read_arguments(const c10::FunctionSchema& schema, OpEntry& entry) {
  bool has_device = false;
  for (size_t i = 0; i < schema.arguments().size(); i++) {
    const c10::Argument& argument = schema.arguments()[i];
    OpArgInfo info{argument.name(), kind_of(*argument.real_type()), false};
    info.is_mutated = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (info.is_mutated && i < 64) entry.mutated |= uint64_t{1} << i;
    entry.has_tensors |= is_tensor_kind(info.kind);
    if (info.kind == OpArgKind::Device && entry.device_argument < 0) entry.device_argument = static_cast<int>(i);
    if (info.name == "dtype") entry.dtype_argument = static_cast<int>(i);
    has_device |= info.name == "device";
    entry.args.push_back(std::move(info));
  }
  entry.is_factory = !entry.has_tensors && has_device;
}

void read_returns(const c10::FunctionSchema& schema, OpEntry& entry) {
  for (const c10::Argument& value : schema.returns()) {
    OpReturnInfo info{kind_of(*value.real_type()), -1, false};
    if (const c10::AliasInfo* alias = value.alias_info()) {
      for (size_t i = 0; i < schema.arguments().size() && info.argument < 0; i++) {
        const c10::AliasInfo* other = schema.arguments()[i].alias_info();
        if (other != nullptr && other->beforeSets() == alias->beforeSets()) info.argument = static_cast<int>(i);
      }
      info.is_argument = alias->isWrite();
      entry.is_view |= !alias->isWrite();
    }
    entry.returns_tensors &= is_tensor_kind(info.kind);
    entry.returns.push_back(info);
  }
}

void read_name(OpEntry& entry) {
  const std::string_view name = entry.name;
  const std::string_view base = name.substr(0, name.find('.'));
  if (name.find("backward") == std::string_view::npos) {
    for (std::string_view word : kRandomWords) entry.is_random |= name.find(word) != std::string_view::npos;
  }
  for (const HiddenMutation& row : kHiddenMutations) {
    if (row.name != base) continue;
    entry.mutated |= (uint64_t{1} << row.first) | (uint64_t{1} << row.second);
    entry.training_argument = row.training;
  }
  entry.reads_data = base == "aten::equal" || base == "aten::is_nonzero" || base == "aten::allclose" ||
                     base == "aten::_local_scalar_dense" || base == "aten::item";
  entry.bumps_versions = base.starts_with("aten::_foreach_") && base.ends_with("_");
}

// Zeros without memory are read by PyTorch's kernels only: in graphs they have memory.
c10::OperatorHandle with_memory(const c10::OperatorHandle& handle) {
  if (handle.operator_name().name != "aten::_efficientzerotensor") return handle;
  return c10::Dispatcher::singleton().findSchemaOrThrow("aten::zeros", handle.operator_name().overload_name.c_str());
}

struct Table {
  std::mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<OpEntry>> entries;  // by schema
};
Table& table() {
  static Table* const instance = new Table;  // operators outlive static destructors
  return *instance;
}

}  // namespace

const OpEntry* entry_of(const c10::OperatorHandle& handle) {
  // The last operators seen by this thread: a lock and a hash less.
  struct Slot {
    const void* schema;
    const OpEntry* entry;
  };
  static thread_local std::array<Slot, 256> cache{};
  const void* schema = &handle.schema();
  Slot& slot = cache[(reinterpret_cast<uintptr_t>(schema) >> 6) % cache.size()];
  if (slot.schema == schema) return slot.entry;
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<OpEntry>& entry = all.entries[schema];
  if (entry == nullptr) {
    entry = std::make_unique<OpEntry>(with_memory(handle));
    entry->name = toString(entry->handle.operator_name());
    entry->index = static_cast<uint32_t>(all.entries.size()) - 1;
    read_arguments(entry->handle.schema(), *entry);
    read_returns(entry->handle.schema(), *entry);
    read_name(*entry);
    // Fused attention draws on GPUs, and has rows of the op table that say so of none.
    const std::string_view name = entry->name;
    const bool is_fused =
        name == "aten::_fused_sdp_choice" ||
        (name.starts_with("aten::_scaled_dot_product_") && !name.starts_with("aten::_scaled_dot_product_attention"));
    entry->is_random |= !is_fused && entry->handle.hasTag(at::Tag::nondeterministic_seeded);
  }
  slot = {schema, entry.get()};
  return entry.get();
}

const OpInfo* find_op(std::string_view name) {
  const size_t dot = name.find('.');
  std::string base(name.substr(0, dot));
  if (base.find("::") == std::string::npos) base = "aten::" + base;
  const std::string overload(dot == std::string_view::npos ? "" : name.substr(dot + 1));
  const auto handle = c10::Dispatcher::singleton().findSchema({base, overload});
  return handle ? entry_of(*handle) : nullptr;
}

}  // namespace reprise::host
