#include "trace/trace.h"

#include <algorithm>

#include "base/check.h"

namespace reprise::trace {

const char* text_of(NodeKind kind) {
  static constexpr const char* kTexts[] = {
#define X(name, text, category, arity, payload) text,
#include "trace/node_kinds.def"
  };
  return kTexts[static_cast<size_t>(kind)];
}

Category category_of(NodeKind kind) {
  static constexpr Category kCategories[] = {
#define X(name, text, category, arity, payload) Category::category,
#include "trace/node_kinds.def"
  };
  return kCategories[static_cast<size_t>(kind)];
}

const char* text_of(FactKind kind) {
  static constexpr const char* kTexts[] = {
#define X(name, text, payload) text,
#include "trace/fact_kinds.def"
  };
  return kTexts[static_cast<size_t>(kind)];
}

ValueId Trace::add_node(NodeKind kind, std::span<const ValueId> operands, PyObject* object, int32_t n, bool is_pre) {
  const auto id = static_cast<ValueId>(values.size());
  Value& value = values.emplace_back();
  value.kind = kind;
  value.is_pre = is_pre;
  value.n = n;
  value.first_operand = static_cast<uint32_t>(operand_pool.size());
  value.operand_count = static_cast<uint32_t>(operands.size());
  value.item = static_cast<int32_t>(items.size());
  value.object = Py_XNewRef(object);
  operand_pool.insert(operand_pool.end(), operands.begin(), operands.end());
  items.push_back({id, -1});
  return id;
}

int32_t Trace::add_guard(ValueId value, FactKind fact, PyObject* object, int64_t n, int32_t snapshot) {
  const auto index = static_cast<int32_t>(guards.size());
  guards.push_back({value, fact, Py_XNewRef(object), n, snapshot});
  items.push_back({value, index});
  return index;
}

const Transform* Trace::find_transform(int32_t item) const {
  const auto found = std::ranges::lower_bound(transforms, item, {}, &Transform::last_item);
  return found != transforms.end() && item >= found->first_item ? &*found : nullptr;
}

void Trace::truncate(size_t item_count) {
  std::erase_if(transforms, [&](const Transform& t) { return t.last_item >= static_cast<int32_t>(item_count); });
  // Guards are numbered in item order, so the dropped ones are the last.
  size_t guard_count = guards.size();
  for (size_t i = item_count; i < items.size(); i++) {
    if (items[i].guard >= 0) {
      --guard_count;
    } else {
      values[items[i].value].item = -1;
    }
  }
  items.resize(item_count);
  std::vector<Guard> dropped(guards.begin() + static_cast<ptrdiff_t>(guard_count), guards.end());
  guards.resize(guard_count);
  for (Guard& guard : dropped) Py_XDECREF(guard.object);
}

int Trace::traverse(visitproc visit, void* arg) const {  // Py_VISIT wants this name
  for (const Value& value : values) Py_VISIT(value.object);
  for (const Guard& guard : guards) Py_VISIT(guard.object);
  for (const FrameState& state : frame_states) {
    Py_VISIT(state.function);
    Py_VISIT(state.code);
  }
  for (const TypeVersion& version : type_versions) {
    Py_VISIT(version.type);
    Py_VISIT(version.mro);
    for (PyObject* name : version.names) Py_VISIT(name);
  }
  for (const TypeLookup& lookup : type_lookups) {
    Py_VISIT(lookup.type);
    Py_VISIT(lookup.name);
    Py_VISIT(lookup.found);
  }
  for (const SpecialNames& names : special_names) {
    Py_VISIT(names.owner);
    for (const auto& [name, value] : names.defined) {
      Py_VISIT(name);
      Py_VISIT(value);
    }
  }
  Py_VISIT(function);
  Py_VISIT(code);
  Py_VISIT(globals);
  return 0;
}

Trace::~Trace() {
  // traverse knows every reference: the destructor drops just those.
  traverse(
      [](PyObject* object, void*) {
        Py_DECREF(object);
        return 0;
      },
      nullptr);
}

}  // namespace reprise::trace
