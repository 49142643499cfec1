// The recorder: one recording of one live run, as a policy of the evaluator (interp/policy.h).
//
// It executes every operation for real and appends what it did to a Trace. Rules that all models keep:
//  1. A fact about an operand is stated (guarded) before the operation that relies on it is executed.
//  2. An operation without a model answers Stop before it has executed anything; the recording then ends in front of
//  the
//     instruction. Where part of it has been executed already, `lose` ends the recording in front of the instruction
//     all the same (that prefix is a valid trace) and the rest is executed unrecorded.
//  3. Ids come from models, never from object identity; a value without an id ends the recording when it is used.
//  4. The recorder keeps no tensor and no created container alive.
//  5. A late guard needs an exact snapshot: no C call between the frames, unless nothing had an effect since that
//  call's
//     instruction began (then it is executed again from its start).
// After the end of the recording every operation still works, unrecorded, until the evaluator leaves the frames.
//
// Threads: belongs to the thread that started it. Ownership: the driver owns the recorder for one recording.
#pragma once

#include <Python.h>

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "capture/heap.h"
#include "host/torch/tensor.h"
#include "interp/policy.h"
#include "trace/trace.h"

namespace reprise::capture {

using base::UnsupportedCode;
using interp::Operand;
using interp::Outcome;
using interp::ResumeMode;
using trace::FactKind;
using trace::NodeKind;

/// What is known about a value under the facts stated so far.
struct Facts {
  PyTypeObject* type = nullptr;  // exact type (borrowed: kept by a guard or a constant)
  PyObject* constant = nullptr;  // the value is this object, or equal to it (borrowed from the trace)
  HeapObject* heap = nullptr;
  bool is_present = false;  // known not to be NULL
  bool is_truth_known = false;
  bool is_length_known = false;
  bool are_keys_known = false;
  bool is_meta_known = false;    // tensors: metadata may be folded to constants
  bool is_meta_tainted = false;  // tensors: metadata depends on data (nonzero and what is computed from it)
  bool is_code_known = false;    // functions: guarded by Code
  bool is_type_guarded = false;  // constants: the type is a fact of its own (modules)
  bool is_new = false;           // tensors: a torch call of the trace made this object
  bool is_repeated = false;      // of a call that is executed again each time: nothing follows from its arguments
  ValueId defaults = kNoValue;   // functions: their __defaults__ and __kwdefaults__, once read
  ValueId keyword_defaults = kNoValue;
};

struct RecorderOptions {
  bool is_fullgraph = false;
  int64_t max_items = 1000000;
  int32_t max_back_edges = 1024;
  /// What took other values in earlier calls, or will: no guard fixes these sizes and ints.
  const trace::VaryingSources* varying = nullptr;
  /// How often a recording has ended in the code of an autograd function, or in a transform that a place calls: these
  /// are taken whole. By address, never followed.
  std::unordered_map<const void*, int>* whole_functions = nullptr;
  /// Regions can hold the transforms of torch.func.
  bool takes_transforms = false;
  /// The function behind a compiled callable and the object bound to it (or nullptr); borrowed. False: it is none.
  bool (*unwrap_compiled)(PyObject* object, PyObject** function, PyObject** self) = nullptr;
};

class Recorder {
 public:
  struct Act : interp::Activation {
    size_t item_mark = 0;     // number of items at the start of its current instruction
    int32_t call_state = -1;  // FrameState while a callee runs, made when first needed
    ValueId function_value = kNoValue;
    HeapObject* generator = nullptr;
    bool is_root = false;
    size_t handled_depth = 0;  // handled_exceptions_ when the frame was entered
    int32_t back_edges = 0;
  };
  static constexpr bool kShadow = true;

  Recorder(const RecorderOptions& options, PyThreadState* thread);
  ~Recorder();

  // ---- driver
  /// The next frame of `function` is the root, entered by a call.
  void expect_root_call(PyObject* function);
  /// The frame that run_frame is called with next is the root, entered at a boundary in its middle.
  void expect_root_frame(host::Frame* frame);
  enum class FrameUse : uint8_t {
    Record,
    PassThrough,
    Witness,  // passes unrecorded, and note_foreign_writes is called if it may have written something (witness.h)
  };
  /// The frames of an exit of `parent`, all of them, are recorded from where they stand: expect_branch_frame is called
  /// for each, innermost first, in front of running it. False: frames that can't be recorded so.
  bool begin_branch(const trace::Trace& parent, int32_t snapshot);
  void expect_branch_frame(host::Frame* frame);
  /// The frame hook asks what to do with a frame that starts on the recording thread.
  FrameUse classify_frame(host::Frame* frame, bool throwflag);
  /// Brackets a frame that passes through unrecorded.
  void begin_pass_through() { c_depth_++; }
  void end_pass_through() { c_depth_--; }
  void note_foreign_writes();
  /// It ended inside a call that another recording takes as a whole: that one is worth more than this one's trace.
  bool is_put_off() const { return is_put_off_; }
  bool is_active() {
    if (active_) {
      boundary_mark_ = trace_->items.size();
    }
    return active_;
  }
  bool is_recording() const { return active_; }
  /// The finished trace; nullptr if there is nothing worth keeping. Call once, after run_frame has come back.
  std::unique_ptr<trace::Trace> take_trace();
  const std::string& end_text() const { return end_text_; }
  UnsupportedCode end_code() const { return end_code_; }
  uint64_t instruction_count() const { return instruction_count_; }
  PyThreadState* thread() const { return thread_; }

#include "capture/recorder_policy.inc"

 private:
  friend struct ModeScope;
  friend struct CCall;

  // ---- facts.cpp: values and facts
  Facts& facts(ValueId id) { return facts_[id]; }
  ValueId emit(NodeKind kind, std::span<const ValueId> operands, PyObject* object = nullptr, int32_t n = 0);
  ValueId emit(NodeKind kind, std::initializer_list<ValueId> operands, PyObject* object = nullptr, int32_t n = 0) {
    return emit(kind, std::span<const ValueId>(operands.begin(), operands.size()), object, n);
  }
  bool guard(ValueId id, FactKind fact, PyObject* object = nullptr, int64_t n = 0);
  bool know_type(Operand o);
  bool know_identity(Operand o);
  bool know_present(ValueId id);
  bool know_absent(ValueId id);
  bool know_function(Operand o);
  bool know_tensor(Operand o);
  bool know_length(Operand o, Py_ssize_t length);
  /// Fixes the value for the rest of the trace; false if it can't be a constant.
  bool make_constant(Operand o);
  bool can_be_constant(PyObject* object) const;
  /// Fixes a dict key or set element: an immutable constant, or identity for objects that hash by identity.
  bool make_key(Operand o);
  bool make_class_key(Operand o);
  /// Its value is known, not only which object it is: containers that may change are read like any other.
  bool is_constant(ValueId id) const {
    return id >= 0 && facts_[id].constant != nullptr && !is_mutable_container(facts_[id].constant);
  }
  static bool is_mutable_container(PyObject* o) {
    return PyList_Check(o) || PyDict_Check(o) || (PyAnySet_Check(o) && !PyFrozenSet_Check(o)) || PyByteArray_Check(o);
  }
  bool is_pre(ValueId id) const { return trace_->values[id].is_pre; }
  bool is_created(ValueId id) const { return id >= 0 && facts_[id].heap != nullptr && facts_[id].heap->is_created; }
  void know_type_version(PyTypeObject* type);
  /// What `name` means in a class (borrowed; nullptr: nothing): a fact of the trace.
  PyObject* find_in_class(PyTypeObject* type, PyObject* name, PyTypeObject* after = nullptr);
  Operand constant(PyObject* object) { return {Py_NewRef(object), constant_id(object)}; }  // new reference
  Operand bool_constant(bool value) { return constant(value ? Py_True : Py_False); }
  Operand new_constant(PyObject* stolen) { return {stolen, constant_id(stolen)}; }
  /// A node's result with the type of the live object known by construction.
  ValueId emit_typed(NodeKind kind, std::span<const ValueId> operands, PyObject* live, PyObject* object = nullptr,
                     int32_t n = 0);

  // ---- objects.cpp: the heap
  HeapObject* heap_of(Operand o);
  HeapObject* new_object(ValueId id);
  /// Reads of this object are sound only if it differs from all objects that were written so far.
  bool check_effects(HeapObject* object);
  bool check_different(HeapObject* object, const std::vector<HeapObject*>& targets, uint32_t& seen);
  void note_effect(HeapObject* object);
  HeapObject* instance_dict_of(Operand o, PyObject** dict);
  /// Reads `dict[key]`; out->object nullptr: absent (a fact). The result is borrowed.
  Outcome read_dict(PyObject* dict, HeapObject* object, Operand key, Operand* out);
  void note_copy(HeapObject* copy, HeapObject* original, PyObject* dict);
  bool read_copied_item(HeapObject* object, Operand key, PyObject* canonical, PyObject* live, Operand* out);
  Outcome write_dict(Operand dict, Operand key, Operand value);
  Outcome remove_from_dict(Operand dict, Operand key);
  bool refresh_dict(PyObject* dict, HeapObject* object);
  void note_dict_written(PyObject* dict, HeapObject* object);
  bool element_ids(Operand sequence, std::vector<ValueId>* out);
  HeapObject* list_of(Operand list);
  // Without `needs_keys` tensors may be keys of a dict that the trace made; their ids are not given then.
  bool dict_ids(Operand dict, std::vector<Operand>* keys, std::vector<ValueId>* values, bool needs_keys = true);
  bool is_fixed_set(Operand o);
  bool take_member_values(Operand l, Operand r, ValueId* operands);
  bool mapping_constants(PyObject* mapping, std::vector<Operand>* keys, std::vector<ValueId>* values);
  Operand new_tuple(PyObject* stolen, std::span<const ValueId> ids, PyObject* subclass = nullptr);
  void note_list_written(PyObject* list, HeapObject* object);
  Operand new_tuple_of(std::span<const Operand> stolen);
  Operand new_list(PyObject* stolen, std::span<const ValueId> ids);
  Operand new_dict(PyObject* stolen, std::span<const ValueId> keys_and_values, PyObject* const* keys);
  Operand new_method(PyObject* function, ValueId function_id, Operand self);
  ValueId read_element(Operand sequence, Py_ssize_t i, PyObject* element);
  void forget_after_callback();
  bool note_identity(HeapObject* set, Operand tensor);
  void state_identities();
  bool closure_ids(Operand function, PyObject* closure, std::vector<ValueId>* ids);
  Outcome read_cell(Operand cell, Operand* out);
  PyObject* key_of(Operand key, bool* by_identity);

  // ---- attributes.cpp
  Outcome get_attribute(Operand o, PyObject* name, Operand* out, Operand* self, bool use_hooks = true);
  Outcome note_missing(PyObject* object, PyObject* name);
  Outcome or_fallback(Outcome outcome, Operand o, PyObject* name, Operand* out);
  Outcome bind_for(PyObject* descriptor, Operand o, Operand* out, Operand* self, bool* handled, bool use_hooks);
  Outcome get_module_attribute(Operand o, PyObject* name, Operand* out);
  Outcome get_type_attribute(Operand o, PyObject* name, Operand* out);
  Outcome read_class_item(PyTypeObject* type, PyObject* name, Operand* out);
  Outcome get_super_attribute(Operand o, PyObject* name, Operand* out, Operand* self);
  Outcome get_tensor_attribute(Operand o, PyObject* name, PyObject* descriptor, Operand* out);
  Outcome bind_descriptor(PyObject* descriptor, Operand o, Operand* out, Operand* self, bool* handled);
  Outcome set_attribute(Operand o, PyObject* name, Operand value, bool use_hooks = true);
  bool know_gradient_at_entry(Operand o, PyObject* name, PyObject* descriptor, PyObject* gradient);
  Outcome set_tensor_attribute(Operand o, PyObject* name, Operand value);
  Outcome read_slot(PyObject* descriptor, Operand o, Operand* out);

  // ---- branches.cpp
  void enter_branch_frame(Act& act);

  // ---- calls.cpp
  Outcome call_any(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome call_note(Operand function, const Operand* args, Operand* out);
  Outcome call_function(Operand function, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome call_expected(PyObject* c_callable, PyObject* const* c_args, int c_n, PyObject* kwnames, Operand function,
                        std::span<const Operand> args, PyObject* function_kwnames, Operand* out);
  Outcome call_c(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome call_partial(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome call_pure(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome call_folded(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out,
                      bool methods_count_by_function = false);
  bool fix_folded_arguments(const Operand* args, int n, bool methods_count_by_function = false);
  Outcome call_conversion(Operand callable, Operand o, Operand* out, bool* is_python);
  Outcome call_fresh(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome call_opaque(Operand callable);

  // ---- repeated_calls.cpp: calls that are executed again each time
  Outcome call_cached(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);
  /// Any call whose arguments have ids; no fact is stated about them.
  Outcome call_transform(Operand function, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome call_repeated(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome call_numpy(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome call_builtin(const char* module, const char* name, std::initializer_list<Operand> args, Operand* out);
  Outcome finish_repeated(Operand callable, const Operand* args, int n, PyObject* kwnames, PyObject* stolen,
                          Operand* out);

  // ---- calls.cpp
  bool fix_callable(Operand callable);
  PyObject* call_live(PyObject* callable, const Operand* args, int n, PyObject* kwnames);
  /// The same of a callable in C: last_call_ran_python_ says whether that called Python code.
  /// The same for a call that is not made again, or again as a whole: what Python inside of it writes (a cache, a
  /// warning that is given once) is as it will be in later calls.
  PyObject* call_live_alone(PyObject* callable, const Operand* args, int n, PyObject* kwnames);
  PyObject* call_live_c(PyObject* callable, const Operand* args, int n, PyObject* kwnames);
  void bind_arguments(Act& act);
  ValueId default_id(Operand function, PyObject* defaults, int parameter, int parameter_count);
  ValueId keyword_default_id(Operand function, PyObject* defaults, PyObject* name);

  // ---- type_calls.cpp
  Outcome call_type(Operand type, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome make_instance(Operand type, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Outcome compare_elements(bool asks_equal, Operand l, Operand r, Operand* out);
  Outcome make_lazy(Operand type, Operand function, Operand source, std::unique_ptr<IteratorState> state, Operand* out);
  Outcome reverse_modules(Operand type, Operand modules, Operand* out);
  Outcome make_super(const Operand* args, int n, Operand* out);
  Outcome make_of_arguments(Operand type, const Operand* args, int n, PyObject* kwnames, Operand* out);
  Operand new_plain_object(PyObject* stolen, Operand type);

  // ---- sizes.cpp: tensors and ints whose sizes and values no guard fixes
  /// The dimensions of a tensor, or bit 0 for an int, that take other values in other calls.
  uint64_t find_varying(Operand o);
  /// Python asks for the metadata of a tensor whose sizes depend on data: from here on they vary, and the rest is a
  /// fact. Where frames can't be resumed nothing is said, and what is read is late.
  void open_late_sizes(Operand o);
  void open_late_ints(Operand o);
  bool varies(ValueId id, int depth = 0) const;
  /// A number or a tuple of numbers that a computation on tensors gave, or that was computed of such.
  void note_resized(Operand tensor);
  bool may_be_another(Operand tensor) const;
  bool know_not_reshaped(Operand tensor);
  void note_written(PyObject* tensors);
  bool may_be_resized(Operand tensor) const;
  bool may_be_made_of(ValueId id, ValueId source) const;
  bool depends_on_data(ValueId id, int depth = 0) const;
  /// What follows from sizes only, and from nothing else that is late.
  bool follows_from_sizes(NodeKind kind, std::span<const ValueId> operands, bool is_pre) const;
  Operand read_size(Operand tensor, host::SizeRead what, int32_t dimension = 0);
  Operand read_shape(Operand tensor, host::SizeRead what);
  /// From here on the sizes are those of this recording.
  bool fix_sizes(Operand tensor);
  bool fix_size(Operand tensor, int32_t dimension);
  /// `is_handled` false: the answer does not depend on sizes, or there is no model of it and they are fixed now.
  Outcome call_size_method(std::string_view name, const Operand* args, int n, Operand* out, bool* is_handled);
  Outcome compare_shapes(bool is_equal, Operand l, Operand r, Operand* out, bool* is_handled);

  // ---- torch_calls.cpp
  Outcome call_torch(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);

  // ---- autograd_functions.cpp
  /// What a function returned that PyTorch's code called: addresses to compare, never to follow.
  struct ReturnWitness {
    interp::Activation* caller = nullptr;  // of the frame that returns
    bool is_tuple = false;
    std::vector<const void*> objects;
    std::vector<uint8_t> needs_grad;
    void note(PyObject* value);
  };
  /// The recording has ended: if that was inside such functions, another one does not enter them.
  void put_off();
  Outcome call_autograd_function(Operand callable, const Operand* args, int n, Operand* out, bool* is_handled);
  bool take_function_results(const Operand* args, int n, const ReturnWitness& witness, Operand* out);
  bool prepare_torch_argument(Operand o, bool scalars_may_vary);
  bool prepare_slice(Operand o);
  bool fix_numbers(Operand o);
  static bool reads_own_items(PyObject* mapping);
  Outcome update_by_keys(Operand d, Operand u, bool is_merge);
  Outcome get_element(Operand c, Operand k, Operand* out);
  Outcome get_slice(Operand c, Operand k, Operand* out);
  bool fix_slice(Operand k);
  Outcome replace_slice(Operand c, Operand k, Operand value);
  bool is_meta_tainted(Operand o);
  bool are_parts_tainted(ValueId sequence);
  /// The same where the value of a number does not decide about the result, only its type.
  bool is_operand_tainted(Operand o);
  Outcome finish_torch_result(NodeKind kind, std::span<const ValueId> operands, PyObject* object, int32_t n,
                              PyObject* stolen, bool is_tainted, Operand* out);
  bool has_tensor(Operand o);
  ValueId fix_lists(Operand o);

  // ---- base_methods.cpp: called past an override
  Outcome call_unrecorded(Operand callable, const Operand* args, int n, Operand* out);
  Outcome base_length(Operand callable, const Operand* args, Operand* out);
  Outcome base_get_item(Operand callable, const Operand* args, Operand* out);
  Outcome base_set_item(Operand callable, const Operand* args, Operand* out);
  Outcome base_contains(Operand callable, const Operand* args, Operand* out);

  // ---- iteration.cpp
  /// `base`: the C method `__iter__` that is called past an override; nullptr: iter(o).
  Outcome make_iterator(Operand o, Operand* out, PyObject* base = nullptr);
  /// Next element; out->object nullptr: exhausted, and *stop_value what it returned unless that is None (new
  /// reference).
  Outcome next_element(Operand iterator, Operand* out, PyObject** stop_value = nullptr);
  /// Advances the model of an iterator by one: the id of the element the live iterator gives. False: exhausted or,
  /// with *is_known false, not predictable.
  bool predict_next(HeapObject* iterator, ValueId* id, bool* is_known);
  Outcome next_of_generator(Operand generator, Operand* out, PyObject** stop_value);
  Outcome next_of_builtin(Operand iterator, bool has_next, Operand* out);
  Outcome next_of_filter(Operand iterator, const IteratorState& state, Operand* out, PyObject** stop_value);
  Outcome make_source(Operand iterable, Operand* out);
  /// asks_length: the callable asks the iterable for its length, as list() does; its class may do something then.
  Outcome all_elements(Operand iterable, std::vector<Operand>* out, bool asks_length = false);
  Outcome ask_length(Operand o);
  /// Taking all elements of it once more gives the same ones and runs no code of the program's.
  static bool can_be_iterated_again(PyObject* iterable);
  Operand new_iterator(PyObject* stolen, std::span<const ValueId> sources, PyObject* type,
                       std::unique_ptr<IteratorState> state);
  ValueId range_id(Py_ssize_t value);
  void keep_dict_iterators(PyObject* dict, HeapObject* object);

  // ---- itertools.cpp
  Outcome make_counter(Operand type, const Operand* args, int n, Operand* out);
  Outcome make_combination(Operand type, const Operand* args, int n, PyObject* kwnames, Operand* out, bool* is_handled);

  // ---- matches.cpp
  Outcome match_keys(Operand subject, Operand keys, Operand* out);
  Outcome match_class(Operand subject, Operand type, Operand keywords, int positional, Operand* out);
  bool pattern_names(Operand type, Operand keywords, int positional, PyObject* list, bool* matches_self);

  // ---- getters.cpp
  Outcome call_getter(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);

  // ---- deques.cpp
  HeapObject* deque_of(Operand o);
  void note_deque_written(PyObject* deque, HeapObject* object);
  Outcome make_deque(Operand type, const Operand* args, int n, PyObject* kwnames, Operand* out);

  // ---- models_order.cpp
  bool are_ordered(std::span<const Operand> elements);

  // ---- operations.cpp
  Outcome length(Operand o, Operand* out);
  Outcome finish_length(Operand* result);
  Outcome compare_values(int op, Operand l, Operand r, Operand* out);
  bool know_module(PyObject* name, PyObject* fromlist, int level, PyObject* module);
  Outcome sort_elements(std::vector<Operand>* elements, Operand key, bool is_reversed, std::vector<Operand>* sorted);
  Outcome sum_alone(Operand callable, std::vector<Operand>* elements, const Operand* args, int n, Operand* out);
  Outcome ask_class(Operand o, Operand classes, PyObject* name, bool* answer);
  Outcome compare_special(int op, Operand l, Operand r, Operand* out, bool* found);
  Outcome call_special(PyObject* name, Operand self, std::span<const Operand> args, Operand* out, bool* found);
  /// The operator that a function of the module operator stands for, or -1.
  static int find_binary_operator(PyObject* function);
  Outcome binary_special(int op, Operand l, Operand r, Operand* out, bool* found);

  // ---- snapshots.cpp
  int32_t take_snapshot(bool must_be_exact);
  void note_effect_node(NodeKind kind, ValueId id);
  /// Something that was there at `mark` has been written since: executing from there again would write it twice.
  bool has_effects_since(size_t mark) const;
  struct KnownException {
    PyObject* object;  // strong
    ValueId id;
    ValueId context = kNoValue;  // what the trace has given it
    ValueId cause = kNoValue;
    ValueId given_cause = kNoValue;  // of `raise ... from`
    bool suppresses = false;
    int32_t raise_snapshot = -1;  // in front of the raise, once it was caught
  };
  ValueId find_exception(PyObject* exception) const;
  void link_exception(PyObject* exception);
  bool end_at_raise(const KnownException& exception, std::string text);
  bool end_if_exception_escapes(ValueId result);
  int32_t error_snapshot() { return take_snapshot(false); }
  int32_t frame_state_of(Act& act, bool is_innermost);
  /// Ends the recording in front of the current instruction (of the outermost frame that no exit can cross).
  /// `is_between`: the instruction has let go of operands already, so the state in front of it is gone.
  void end_recording(UnsupportedCode code, std::string text, bool is_between = false);
  Outcome stop(UnsupportedCode code, std::string text);
  Outcome stop(std::string text) { return stop(UnsupportedCode::UnmodelledOperation, std::move(text)); }
  /// Something was executed already: the trace ends in front of the instruction, execution goes on unrecorded.
  void lose(std::string text);

 public:
  // ---- models of C callables (callables.def): called with the table row's name
  using Model = Outcome (Recorder::*)(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);
#define X(name) Outcome model_##name(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out);
#include "capture/models.def"

 private:
  struct LookupKey {
    PyTypeObject *type, *after;
    PyObject* name;
    bool operator==(const LookupKey&) const = default;
  };
  struct LookupKeyHash {
    size_t operator()(const LookupKey& key) const {
      auto word = [](const void* address) { return reinterpret_cast<uintptr_t>(address); };
      return base::hash_combine(word(key.type) ^ (word(key.after) << 1), word(key.name));
    }
  };

  RecorderOptions options_;
  PyThreadState* thread_;
  std::unique_ptr<trace::Trace> trace_;
  std::vector<Facts> facts_;
  std::unordered_map<PyObject*, ValueId> constants_;
  std::unordered_set<PyTypeObject*> known_types_;
  std::unordered_set<PyTypeObject*> known_classes_;  // rows of Trace::special_names
  std::unordered_set<LookupKey, LookupKeyHash> known_lookups_;
  Heap heap_;
  Act* top_ = nullptr;
  bool active_ = true;
  bool has_ended_ = false;
  size_t boundary_mark_ = 0;
  struct Effect {
    int32_t item;         // of the node
    int32_t target_item;  // where its target was made; -1: it existed before, or is torch's
  };
  std::vector<Effect> effects_;
  /// Depth of a walk over containers, one of which may contain itself.
  struct Nesting {
    explicit Nesting(int* depth) : depth_(depth) { ++*depth_; }
    ~Nesting() { --*depth_; }
    bool is_deep() const { return *depth_ > 100; }
    int* depth_;
  };
  int nesting_ = 0;
  int c_depth_ = 0;                    // inside C calls whose Python passes unrecorded
  bool last_call_ran_python_ = false;  // in the C call that was bracketed last
  bool saw_callback_ = false;          // such Python has run since the flag was cleared
  bool reads_are_late_ = false;        // lists and cells may have been written by unrecorded Python
  bool force_late_ = false;            // the next reads are late whatever their operands are
  bool has_foreign_writes_ = false;  // such Python may have written, and forget_after_callback has not been called yet
  bool had_callbacks_ = false;       // such Python may have written during this recording
  bool has_outer_graph_ = false;     // tensors may hang on graphs that the trace did not see
  bool any_varies_ = false;          // there is a value with Value::varies
  std::vector<Operand> resized_;     // tensors whose sizes were written; the objects may have died
  std::vector<HeapObject*> reshaped_;            // those of them that calls wrote (`t.unsqueeze_(0)`)
  std::unordered_map<uint64_t, ValueId> sizes_;  // by tensor and read
  std::unordered_set<void*> written_storages_;   // of tensors that the trace may have written to
  bool grads_written_ = false;                   // .grad of leaves is no longer a function of the entry state
  std::unordered_set<void*> reached_leaves_;     // tensor_impl() of those that it wrote
  bool exception_is_recorded_ = false;
  int32_t raise_snapshot_ = -1;
  uint64_t start_dict_version_ = 0;
  uint64_t instruction_count_ = 0;
  struct HandledException {
    ValueId id;
    int32_t raise_snapshot;  // in front of what raised it; -1: unknown
  };
  std::vector<HandledException> handled_exceptions_;  // raised in the trace, innermost last
  int32_t caught_snapshot_ = -1;
  bool is_unwinding_ = false;  // the frame is on its way to a handler: its state is that of the raise
  std::vector<KnownException> known_exceptions_;  // raised in the trace
  std::unordered_map<host::Frame*, HeapObject*> generator_frames_;

  struct PendingCall {
    PyObject* function = nullptr;
    ValueId function_id = kNoValue;
    std::vector<ValueId> ids;
    int positional = 0;
    PyObject* kwnames = nullptr;
    bool is_set = false;
    bool is_root = false;
  } pending_;
  host::Frame* pending_frame_ = nullptr;
  struct BranchFrame {
    std::vector<ValueId> ids;
    ValueId function = kNoValue, mode_value = kNoValue;
    host::ResumeMode mode = host::ResumeMode::Push;
    int32_t caller = -1;  // FrameState of the next outer frame
  };
  std::vector<BranchFrame> branch_frames_;  // those still to come, outermost first
  int32_t root_caller_ = -1;                // FrameState of the frame that the root frame returns to
  ValueId branch_result_ = kNoValue;        // what the last frame returned
  ValueId return_id_ = kNoValue;
  ReturnWitness* return_witness_ = nullptr;
  std::vector<const void*> function_codes_;  // of the autograd functions that are being recorded, outermost first
  bool is_put_off_ = false;
  bool is_in_transform_ = false;
  struct DictIterator {
    PyObject* dict;  // an address to compare
    HeapObject* iterator;
  };
  std::vector<DictIterator> dict_iterators_;
  ValueId rare_id_ = kNoValue;
  ValueId sent_id_ = kNoValue;  // generator.send: what the frame that is resumed next gets

  std::string end_text_;
  UnsupportedCode end_code_ = UnsupportedCode::UnmodelledOperation;
};

/// Sets how the current frame takes a callee's result, for the time of a model.
struct ModeScope {
  ModeScope(Recorder& recorder, ResumeMode mode, Operand value = {}) : act_(recorder.top_) {
    if (act_ == nullptr) return;
    saved_mode_ = act_->resume_mode;
    saved_value_ = act_->resume_value;
    act_->resume_mode = saved_mode_ == ResumeMode::Never ? ResumeMode::Never : mode;
    act_->resume_value = value;
    act_->call_state = -1;
  }
  ~ModeScope() {
    if (act_ == nullptr) return;
    act_->resume_mode = saved_mode_;
    act_->resume_value = saved_value_;
    act_->call_state = -1;
  }
  Recorder::Act* act_;
  ResumeMode saved_mode_ = ResumeMode::Push;
  Operand saved_value_;
};

/// Brackets a C call whose Python callbacks (if any) pass unrecorded; says whether there were any.
struct CCall {
  explicit CCall(Recorder& recorder) : recorder_(recorder), outer_(recorder.saw_callback_) {
    recorder_.c_depth_++;
    recorder_.saw_callback_ = false;
  }
  ~CCall() {
    recorder_.c_depth_--;
    recorder_.last_call_ran_python_ = recorder_.saw_callback_;
    recorder_.saw_callback_ = recorder_.saw_callback_ || outer_;
  }
  bool saw_callback() const { return recorder_.saw_callback_; }
  Recorder& recorder_;
  bool outer_;
};

}  // namespace reprise::capture
