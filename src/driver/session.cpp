#include "driver/session.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "capture/witness.h"
#include "driver/aot_region.h"
#include "driver/backend_region.h"
#include "entry/entry.h"
#include "host/cpython/hook.h"
#include "interp/evaluator.h"
#include "runtime/compiled_callable.h"
#include "runtime/drive.h"
#include "runtime/errors.h"
#include "runtime/plan_places.h"
#include "trace/trace.h"

namespace reprise::driver {

namespace {

thread_local Session* t_session = nullptr;

bool unwrap_compiled(PyObject* object, PyObject** function, PyObject** self) {
  runtime::CallTarget target = runtime::find_call_target(object);
  *function = target.function;
  *self = target.self;
  return target.function != nullptr;
}

capture::RecorderOptions make_options(runtime::CompileContext& context, const trace::VaryingSources& varying) {
  capture::RecorderOptions options;
  if (context.has_varying_sizes()) options.varying = &varying;
  options.max_items = context.options.max_trace_items;
  options.whole_functions = &context.whole_functions;
  options.takes_transforms = context.is_native() || context.is_aot_eager();
  options.unwrap_compiled = unwrap_compiled;
  return options;
}

trace::VaryingSources list_varying(const runtime::CompileContext& context, const runtime::Place& place) {
  trace::VaryingSources varying = place.varying();
  varying.has_all_arguments = context.options.dynamic == base::Dynamic::True;
  return varying;
}

trace::RegionOptions make_region_options(const runtime::CompileContext& context) {
  trace::RegionOptions options;
  if (context.is_native() || context.is_aot_eager()) {
    options.min_nodes = static_cast<int32_t>(context.options.min_region_nodes);
    options.takes_late_numbers = options.takes_sizes = options.takes_gradients = true;
  }
  if (!PyUnicode_Check(context.backend())) {
    options.min_nodes = 1;
    options.takes_sizes = true;
    options.takes_data_sizes = context.takes_data_sizes;
    options.takes_gradients = context.takes_gradients;
  }
  return options;
}

void add_runners(runtime::CompileContext& context, entry::Entry& entry) {
  if (context.is_native() || context.is_aot_eager()) {
    add_aot_runners(context, entry);
  } else {
    add_backend_runners(context, entry);
  }
}

void dump(base::LogWord word, const std::string& title, const std::string& text) {
  base::write_log(word, title + "\n" + text);
}

}  // namespace

Session::Session(runtime::CompileContext& context, runtime::Place& place, PyThreadState* thread)
    : context_(&context),
      place_(place),
      varying_(list_varying(context, place)),
      recorder_(make_options(context, varying_), thread),
      outer_(t_session) {
  t_session = this;
}

Session::~Session() { t_session = outer_; }

Session* Session::find_current() { return t_session; }

PyObject* Session::pass_through(PyThreadState* thread, host::Frame* frame, bool throwflag) {
  recorder_.begin_pass_through();
  PyObject* result = host::run_previous(thread, frame, throwflag);
  recorder_.end_pass_through();
  return result;
}

PyObject* Session::witness(PyThreadState* thread, host::Frame* frame, bool throwflag) {
  recorder_.begin_pass_through();
  bool only_reads;
  PyObject* result = capture::run_witnessed(thread, frame, throwflag, &only_reads);
  recorder_.end_pass_through();
  if (!only_reads) recorder_.note_foreign_writes();
  return result;
}

PyObject* Session::run_frame(PyThreadState* thread, host::Frame* frame, bool throwflag) {
  interp::RunResult result = interp::run_frame(recorder_, thread, frame, throwflag);
  if (result.status == interp::RunResult::Returned) return result.value;
  finish();
  if (raise_if_graph_break()) return host::run_default(thread, frame, 1);
  runtime::DriveScope scope(*context_);
  return runtime::drive(*context_, thread, frame, 0);
}

bool Session::raise_if_graph_break() {
  if (!context_->options.fullgraph || recorder_.is_put_off() || recorder_.is_recording() ||
      recorder_.end_text().empty())
    return false;
  std::string text = recorder_.end_text();
  if (!end_place_.empty()) text += " at " + end_place_;
  text += std::string(": ") + std::string(base::get_unsupported_hint(recorder_.end_code()));
  runtime::raise_graph_break(text);
  return true;
}

// The item runs as a step of its own, and so do all calls of the same function: what it could not do in a region, they
// can't either.
static void exclude_alike(const trace::Trace& trace, int32_t item, std::vector<int32_t>* excluded) {
  excluded->push_back(item);
  const trace::ValueId id = trace.items[item].value;
  if (trace.values[id].kind != trace::NodeKind::TensorCall) return;
  const trace::ValueId callable = trace.operands(id)[0];
  for (int32_t i = 0; i < static_cast<int32_t>(trace.items.size()); i++) {
    if (trace.items[i].guard >= 0 || i == item) continue;
    const trace::ValueId other = trace.items[i].value;
    const bool is_alike =
        trace.values[other].kind == trace::NodeKind::TensorCall && trace.operands(other)[0] == callable;
    if (is_alike) excluded->push_back(i);
  }
}

// The guard ends its group. Where another of the same instruction does so already (a loop that ends now here, now
// there), all of that instruction do.
static void cut_at(const trace::Trace& trace, int32_t item, std::vector<int32_t>* cuts) {
  const auto is_alike = [&](int32_t other) {
    if (trace.items[item].guard < 0 || trace.items[other].guard < 0) return false;
    const trace::Guard& a = trace.guards[trace.items[item].guard];
    const trace::Guard& b = trace.guards[trace.items[other].guard];
    if (a.fact != b.fact || a.snapshot < 0 || b.snapshot < 0) return false;
    const trace::FrameState& at_a = trace.frame_states[trace.snapshots[a.snapshot].frame];
    const trace::FrameState& at_b = trace.frame_states[trace.snapshots[b.snapshot].frame];
    return at_a.code == at_b.code && at_a.unit == at_b.unit;
  };
  const bool is_loop = std::ranges::any_of(*cuts, is_alike);
  cuts->push_back(item);
  for (int32_t i = 0; is_loop && i < static_cast<int32_t>(trace.items.size()); i++) {
    if (is_alike(i)) cuts->push_back(i);
  }
}

/// No region has all of it: from the next recording on each is one call that is made again.
static void give_up_transforms(runtime::CompileContext& context, const std::vector<const void*>& places) {
  constexpr int kAlways = 1 << 20;
  for (const void* place : places) context.whole_functions[place] = kAlways;
}

void Session::renew(runtime::CompileContext& context, runtime::PublishedEntry& published) {
  entry::Entry& old = published.entry();
  trace::RegionOptions options = old.region_options;
  const std::vector<int32_t> failing = old.list_failing_guards();
  for (int32_t item : failing) cut_at(old.trace(), item, &options.cuts);
  context.statistics.cut_groups += failing.size();
  std::vector<std::string> notes = old.region_notes;
  for (const entry::RegionStep& step : old.regions()) {
    if (!step.runner->is_given_up()) continue;
    const trace::Region& region = old.region_plan().regions[step.region];
    if (step.runner->is_asked_too_much()) {
      ++context.statistics.replanned_regions;
      notes.push_back(
          "region of " + std::to_string(region.tensor_node_count) +
          " torch calls was planned again without results of data's sizes and gradients: " + step.runner->describe());
      continue;
    }
    if (step.runner->has_raised_ahead()) {
      // What can't run ahead of a guard may be all right behind it.
      for (const trace::Region& other : old.region_plan().regions) {
        const auto is_guard = [&](int32_t item) { return old.trace().items[item].guard >= 0; };
        if (other.group == region.group) std::ranges::copy_if(other.steps, std::back_inserter(options.cuts), is_guard);
      }
      ++context.statistics.cut_groups;
      continue;
    }
    if (const std::vector<int32_t> refused = step.runner->list_refused_items(); !refused.empty()) {
      ++context.statistics.replanned_regions;
      std::ranges::copy(refused, std::back_inserter(options.excluded));
      notes.push_back("region of " + std::to_string(region.tensor_node_count) +
                      " torch calls was planned again without " + std::to_string(refused.size()) +
                      " of them: " + step.runner->describe());
      continue;
    }
    notes.push_back("region of " + std::to_string(region.tensor_node_count) +
                    " torch calls was dissolved: " + step.runner->describe());
    ++context.statistics.dissolved_regions;
    const std::vector<int32_t> varying = step.runner->list_varying_numbers();
    for (int32_t i : varying) options.varying.push_back(region.numbers[i]);
    const int32_t blamed = varying.empty() ? step.runner->blamed_item() : -1;
    if (blamed >= 0) {
      exclude_alike(old.trace(), blamed, &options.excluded);
    } else if (varying.empty()) {
      options.excluded.insert(options.excluded.end(), region.items.begin(), region.items.end());
    }
  }
  options.takes_data_sizes &= context.takes_data_sizes;
  options.takes_gradients &= context.takes_gradients;
  std::unique_ptr<entry::Entry> entry = entry::make_entry(old.take_trace(), nullptr, options);
  REPRISE_CHECK(entry != nullptr, "an entry cannot be made again");
  if (const auto places = entry->list_broken_transforms(); !places.empty()) {
    give_up_transforms(context, places);
    published.place()->want_recording("a transform of torch.func that could not be compiled");
    published.place()->drop(published);
    return;
  }
  entry->region_notes = std::move(notes);
  add_runners(context, *entry);
  published.renew(std::move(entry));
}

void Session::finish() {
  if (is_finished_) return;
  is_finished_ = true;
  // The exception that may be on its way must not be seen, or lost, by what runs here.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  std::string reason = recorder_.end_text();
  std::unique_ptr<entry::Entry> entry;
  std::vector<const void*> broken;
  try {
    if (std::unique_ptr<trace::Trace> trace = recorder_.is_put_off() ? nullptr : recorder_.take_trace()) {
      if (base::is_log_enabled(base::LogWord::Trace))
        dump(base::LogWord::Trace, context_->name, trace::print_trace(*trace));
      if (trace->end_snapshot >= 0) {
        end_place_ = trace::describe_place(trace->frame_states[trace->snapshots[trace->end_snapshot].frame]);
      }
      bool is_return = trace->end == trace::EndKind::Return;
      if (!is_return) runtime::plan_places_behind(*context_, *trace);
      bool is_empty = !is_return && !trace->is_call_entry && trace->items.size() == 0;
      if (!is_empty) {
        runtime::PhaseTimer timer(context_->statistics, runtime::Phase::Entry);
        entry = entry::make_entry(std::move(trace), &reason, make_region_options(*context_));
        if (entry != nullptr) broken = entry->list_broken_transforms();
        if (!broken.empty()) entry.reset();
        if (entry != nullptr) add_runners(*context_, *entry);
      }
    }
  } catch (const base::InternalError& error) {
    if (!runtime::is_strict()) runtime::report_bug(error);
    reason = std::string("internal error: ") + error.what();
  }
  if (entry != nullptr) {
    if (base::is_log_enabled(base::LogWord::Entry)) dump(base::LogWord::Entry, context_->name, entry->print());
    place_.publish(std::move(entry));
  } else if (!broken.empty()) {
    give_up_transforms(*context_, broken);
    place_.note_recording_put_off();
  } else if (recorder_.is_put_off()) {
    if (base::is_log_enabled(base::LogWord::Trace))
      dump(base::LogWord::Trace, context_->name, "put off: " + recorder_.end_text());
    place_.note_recording_put_off();
  } else {
    place_.note_recording_failed(reason.empty() ? "nothing could be recorded" : reason);
  }
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
}

}  // namespace reprise::driver
