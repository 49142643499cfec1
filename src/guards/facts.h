// Facts checked natively: no Python code, no rich comparison of anything but exact builtin scalars and torch's own
// immutable types. Used by guard programs and by late guards among the steps. A pending exception stays.
#pragma once

#include <Python.h>

#include <cstdint>

#include "host/torch/tensor.h"
#include "trace/trace.h"

namespace reprise::guards {

/// `object`, `n` as in fact_kinds.def; `meta` for TensorMeta and TensorLike; `other`: the other value of Same and
/// Different.
bool check_fact(trace::FactKind fact, PyObject* value, PyObject* object, int64_t n, const host::TensorMeta* meta,
                PyObject* other);

/// Same type and same value: numbers by their bits, strings and bytes by their contents, tuples by their elements.
/// Objects of other types are equal only if they are the same.
bool equals_exactly(PyObject* a, PyObject* b);

/// bool(object) where that runs no user code: 0 or 1; -1 where it might.
int find_truth(PyObject* object);
/// len(object) of builtin containers and tensors; -1 for everything else.
Py_ssize_t find_length(PyObject* object);

/// int, float, complex, bool, str, bytes, None: exact builtin types whose objects never change.
bool is_scalar(PyObject* object);
/// Any operation on the object runs C code only, as far as the object decides: scalars, torch's dtypes and devices,
/// ranges, functions and types, and containers of these. `may_change` is set if it holds a list, dict or set.
bool is_plain(PyObject* object, bool* may_change = nullptr);
/// Comparing and hashing the object run C code only: plain, or by identity.
bool is_plain_to_compare(PyObject* object);

/// Looks `key` up without running user code. false: that might happen. Tensors are found by identity.
bool find_dict_item(PyObject* dict, PyObject* key, PyObject** found);

}  // namespace reprise::guards
