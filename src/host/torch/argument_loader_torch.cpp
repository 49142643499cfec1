#include "host/torch/argument_loader_impl.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include "host/torch/scalar_values_impl.h"

namespace reprise::host {

namespace {

const c10::IValue& element_value(const Loader::Element& element, const std::vector<c10::IValue>& slots) {
  return element.slot >= 0 ? slots[static_cast<size_t>(element.slot)] : element.constant;
}

}  // namespace

Loader::Kind list_kind(OpArgKind kind) {
  switch (kind) {
    case OpArgKind::TensorList:
      return Loader::Kind::TensorList;
    case OpArgKind::OptionalTensorList:
      return Loader::Kind::OptionalTensorList;
    case OpArgKind::FloatList:
      return Loader::Kind::FloatList;
    case OpArgKind::NumberList:
      return Loader::Kind::NumberList;
    default:
      return Loader::Kind::IntList;
  }
}

c10::IValue load(const Loader& loader, const std::vector<c10::IValue>& slots) {
  switch (loader.kind) {
    case Loader::Kind::Constant:
      return loader.constant;
    case Loader::Kind::Slot:
      return slots[static_cast<size_t>(loader.slot)];
    case Loader::Kind::WrappedSlot: {
      const c10::IValue& value = slots[static_cast<size_t>(loader.slot)];
      return value.isTensor() ? value : as_wrapped(value);
    }
    case Loader::Kind::TensorList: {
      c10::List<at::Tensor> list;
      list.reserve(loader.elements.size());
      for (const auto& element : loader.elements) list.push_back(element_value(element, slots).toTensor());
      return list;
    }
    case Loader::Kind::OptionalTensorList: {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& element : loader.elements) {
        const c10::IValue& value = element_value(element, slots);
        list.push_back(value.isNone() ? std::nullopt : std::optional(value.toTensor()));
      }
      return list;
    }
    case Loader::Kind::IntList: {
      c10::List<int64_t> list;
      for (const auto& element : loader.elements) list.push_back(element_value(element, slots).toInt());
      return list;
    }
    case Loader::Kind::FloatList: {
      c10::List<double> list;
      for (const auto& element : loader.elements) list.push_back(element_value(element, slots).toScalar().toDouble());
      return list;
    }
    case Loader::Kind::NumberList: {
      c10::impl::GenericList list(c10::NumberType::get());
      for (const auto& element : loader.elements) list.push_back(element_value(element, slots));
      return list;
    }
  }
  return {};
}

StoragePosition StoragePosition::of(const OpInfo& op, int64_t traced) {
  StoragePosition position;
  if (!op.name.starts_with("aten::as_strided")) return position;
  for (size_t i = 0; i < op.args.size(); i++) {
    if (op.args[i].name == "storage_offset") position = {static_cast<int32_t>(i), traced};
  }
  return position;
}

void StoragePosition::move(c10::IValue* arguments) const {
  if (argument < 0 || !arguments[argument].isInt()) return;
  const int64_t shift = arguments[0].toTensor().storage_offset() - traced;
  if (shift != 0) arguments[argument] = arguments[argument].toInt() + shift;
}

}  // namespace reprise::host
