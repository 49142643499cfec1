// Symbolic scalars: SymNodes whose operations become scalar operations of the traced graph. Private to host/torch.
//
// Made by item() on a trace tensor. Arithmetic is recorded; asking for the value (a branch, a size) fails the trace:
// the region has to be cut in front of it. Only valid during the run that made them.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/SymNodeImpl.h>

#include <optional>

#include "host/torch/op_sink.h"

namespace reprise::host {

/// The scalar operation appended to the current run; its result as a SymNode.
c10::SymNode add_symbolic_op(ScalarOp op, std::span<const OpArg> args, TraceValueKind kind);

/// A value of the current run.
c10::SymNode make_symbol(TraceValueId value, TraceValueKind kind);

/// The SymNode of a symbolic IValue, null if it is a plain number.
c10::SymNode find_symbol(const c10::IValue& value);
/// A SymNode of ours (perhaps wrapped by Python) or a constant one, as an argument.
OpArg arg_of_symbol(const c10::SymNode& node);
/// A Python number in a tensor's place that hides a symbol: torch's argument parser gives it a placeholder value.
c10::SymNode find_wrapped_symbol(const at::Tensor& number);

TraceValueKind kind_of_item(c10::ScalarType dtype);
/// A torch.SymFloat, SymInt or SymBool.
PyObject* wrap_symbol(const c10::SymNode& node);

}  // namespace reprise::host
