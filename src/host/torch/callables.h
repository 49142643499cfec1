// What a C callable or a getset of torch does, as far as a recorder must know: given by the object itself.
//
// torch_callables.def and tensor_attributes.def are the truth. The table over all C callables of torch is made once, at
// the first question or by prepare_torch_callables() (a few ms: it walks the modules torch._C.* through the C API and
// runs no Python code); after that a question is one hash lookup and may be asked at any time. Needs the GIL.
//
// Python functions are never classified: the recorder evaluates them. Without torch everything is Unknown.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise::host {

enum class TorchCallableKind : uint8_t {
#define KIND(name, text) name,
#include "host/torch/torch_callables.def"
};

/// "metadata", "sync" ...
const char* text_of(TorchCallableKind kind);

struct TorchCallable {
  bool is_torch = false;
  TorchCallableKind kind = TorchCallableKind::Unknown;
  uint8_t size_rule = 0;  // for has_data_dependent_sizes()
  const char* name = "";  // "Tensor.item", "torch.nonzero", "torch._C._get_tracing_state", "aten::add.Tensor"; static
};

/// Any object is allowed: builtins, method descriptors, slot wrappers, bound builtins, types of torch._C, operators of
/// torch.ops. A bound builtin has the kind of the function that it binds. NULL (one that is known late) is none of
/// torch's.
TorchCallable classify_torch_callable(PyObject* callable);

/// Do the sizes of the results of this call depend on data? `args` is in vectorcall form: `count` positional arguments,
/// then one value for each name of `names` (may be nullptr). For methods called through their descriptor, args[0] is
/// the tensor. True for every DataDependent callable but those with a rule: where(), one_hot(), repeat_interleave(),
/// tensor_split(), and indexing, whose sizes depend on data only with some arguments.
bool has_data_dependent_sizes(const TorchCallable& callable, PyObject* const* args, size_t count, PyObject* names);

/// Do the metadata of `tensor[index]` depend on data? Masks count their true elements; a tensor of one whole number
/// decides where a view begins, or a slice; what is neither a number nor a tensor (a numpy array) may be a mask.
bool has_data_dependent_result(PyObject* index);

/// Does this function ask a kind of device that this process has none of, and never will? What it raises for want of a
/// device or driver it raises at each call.
bool lacks_device(const TorchCallable& callable);

/// What a call does besides giving results, by the schemas of all operators of its name. Tensors given as `out=` are
/// not meant: callers look for them.
struct CallEffects {
  bool is_known = false;      // else it may do anything
  bool writes_first = false;  // to its first operand, and to nothing else
  bool draws = false;         // random numbers, perhaps
  bool makes_memory = false;  // results share memory with no operand; false: with operands only, or new
};
CallEffects find_effects(const TorchCallable& callable);

/// A Python value of a tensor's data that shares no memory with it: item(), tolist(), equal().
bool only_reads_data(const TorchCallable& callable);

enum class TensorAttributeKind : uint8_t {
  Unknown,    // not an attribute of torch tensors
  Metadata,   // read: constant once TensorMeta is guarded. write: changes TensorMeta
  HeapState,  // Python-visible state of the tensor that ops and backward change: grad, grad_fn, hooks, _version
  Tensor,     // read: a tensor, as an op gives. write: changes data, as an in-place op does
  Foreign,    // an address or raw memory
};
const char* text_of(TensorAttributeKind kind);

struct TensorAttribute {
  TensorAttributeKind read = TensorAttributeKind::Unknown;
  TensorAttributeKind write = TensorAttributeKind::Unknown;
};

/// Takes a getset descriptor of torch's tensor base type, or a str (then: the attribute of that name).
TensorAttribute classify_tensor_attribute(PyObject* descriptor_or_name);

/// Build the table now. False with an exception set if torch is not imported.
bool prepare_torch_callables();

/// Rows of torch_callables.def that name nothing in this torch; for the tests.
std::vector<const char*> find_unresolved_torch_rows();

}  // namespace reprise::host
