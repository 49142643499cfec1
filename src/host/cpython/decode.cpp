#include "host/cpython/decode.h"

#include <opcode.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "host/cpython/host_state.h"

// PyCode_GetCode gives the original instructions: without specialisation, instrumentation or executors, caches zeroed.

namespace reprise::host {
namespace {

// --- tables
// -----------------------------------------------------------------------------------------------------------

#if PY_VERSION_HEX >= 0x030D0000
#define REPRISE_CPYTHON(name, opcode, v311, v312, v313) REPRISE_ROW_##v313(name, opcode)
#elif PY_VERSION_HEX >= 0x030C0000
#define REPRISE_CPYTHON(name, opcode, v311, v312, v313) REPRISE_ROW_##v312(name, opcode)
#else
#define REPRISE_CPYTHON(name, opcode, v311, v312, v313) REPRISE_ROW_##v311(name, opcode)
#endif
#define REPRISE_ROW__(name, opcode)

constexpr int kOpcodes = 256;

struct NeutralOps {
  Op of[kOpcodes];
  constexpr NeutralOps() : of() {
    for (Op& op : of) op = Op::HandOver;
#define REPRISE_OP(name, pops, resume, kind)
#define REPRISE_ROW_y(name, opcode) of[opcode] = Op::name;
#include "host/cpython/opcodes.def"
#undef REPRISE_OP
#undef REPRISE_ROW_y
  }
};
constexpr NeutralOps kNeutralOps;

constexpr OpKind kKinds[] = {
#define REPRISE_OP(name, pops, resume, kind) OpKind::kind,
#define REPRISE_ROW_y(name, opcode)
#include "host/cpython/opcodes.def"
#undef REPRISE_OP
};

constexpr const char* kNames[] = {
#define REPRISE_OP(name, pops, resume, kind) #name,
#include "host/cpython/opcodes.def"
#undef REPRISE_OP
};

// Fills in what the table says about an instruction whose op, argument and flags are final.
void apply_table(Instruction* instruction) {
  using enum ResumeMode;
  const int32_t arg = instruction->arg;
  const uint8_t flags = instruction->flags;
  (void)arg, (void)flags;
  switch (instruction->op) {
#define REPRISE_OP(name, pop_count, resume_mode, kind) \
  case Op::name:                                       \
    instruction->pops = (pop_count);                   \
    instruction->resume = (resume_mode);               \
    break;
#include "host/cpython/opcodes.def"
#undef REPRISE_OP
#undef REPRISE_ROW_y
#undef REPRISE_CPYTHON
  }
  if (get_op_kind(instruction->op) != OpKind::Move) instruction->flags |= kInstructionMayCall;
}

// --- arguments
// --------------------------------------------------------------------------------------------------------

constexpr bool kIs312 = PY_VERSION_HEX >= 0x030C0000;
constexpr bool kIs313 = PY_VERSION_HEX >= 0x030D0000;

// Numbers of CPython's intrinsics (3.12 and later).
constexpr int kIntrinsicImportStar = 2;
constexpr int kIntrinsicUnaryPositive = 5;
constexpr int kIntrinsicListToTuple = 6;
constexpr int kIntrinsicFirstTypeParameter = 7;  // these look at the calling frame
constexpr int kIntrinsicPrepReraiseStar = 1;     // of two operands

void normalise_intrinsic(Instruction* instruction) {
  const int32_t number = instruction->arg;
  if (instruction->op == Op::CallIntrinsic2) {
    if (number != kIntrinsicPrepReraiseStar) instruction->op = Op::HandOver;
  } else if (number == kIntrinsicUnaryPositive) {
    instruction->op = Op::UnaryPositive;
  } else if (number == kIntrinsicListToTuple) {
    instruction->op = Op::ListToTuple;
  } else if (number == kIntrinsicImportStar || number >= kIntrinsicFirstTypeParameter) {
    instruction->op = Op::HandOver;
  }
}

void normalise_format(Instruction* instruction) {
#if PY_VERSION_HEX >= 0x030D0000
  switch (instruction->opcode) {
    case CONVERT_VALUE:
      instruction->arg |= kFormatConvertOnly;
      break;
    case FORMAT_WITH_SPEC:
      instruction->arg = kFormatHasSpec;
      break;
    default:
      instruction->arg = 0;
  }
#else
  (void)instruction;  // FORMAT_VALUE's bits are ours
#endif
}

// Splits flag bits off CPython's argument and picks the final op.
void normalise(Instruction* instruction) {
  int32_t& arg = instruction->arg;
  switch (instruction->op) {
    case Op::LoadAttr:
      if (kIs312) {
        if (arg & 1) instruction->op = Op::LoadMethod;
        arg >>= 1;
      }
      break;
    case Op::LoadGlobal:
      if (arg & 1) instruction->flags |= kInstructionPushNull;
      arg >>= 1;
      break;
    case Op::LoadSuperAttr:
      if (arg & 1) instruction->flags |= kInstructionPushNull;
      if (arg & 2) instruction->flags |= kInstructionTwoArguments;
      arg >>= 2;
      break;
    case Op::CompareOp:
      if (kIs313 && (arg & 16)) instruction->flags |= kInstructionToBool;
      arg >>= kIs313 ? 5 : kIs312 ? 4 : 0;
      break;
    case Op::Resume:
      if (kIs313) arg &= 3;
      break;
    case Op::EndFor:
      arg = kIs313 ? 1 : 2;
      break;
    case Op::RaiseVarargs:
      if (arg == 0) instruction->op = Op::RaiseCurrent;
      break;
    case Op::CallIntrinsic1:
    case Op::CallIntrinsic2:
      normalise_intrinsic(instruction);
      break;
    case Op::FormatValue:
      normalise_format(instruction);
      break;
    case Op::Call:
#if PY_VERSION_HEX >= 0x030D0000
      if (instruction->opcode == CALL_KW) instruction->flags |= kInstructionKwOnStack;
#endif
      break;
    case Op::MakeFunction:
      if (kIs313) arg = 0;
      break;
    default:  // the argument is neutral already
      break;
  }
}

PyObject* find_object(PyCodeObject* code, const Instruction& instruction) {
  const auto item = [&](PyObject* tuple) -> PyObject* {
    return instruction.arg < PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, instruction.arg) : nullptr;
  };
  switch (instruction.op) {
    case Op::LoadConst:
    case Op::ReturnConst:
      return item(code->co_consts);
    case Op::LoadAttr:
    case Op::LoadMethod:
    case Op::StoreAttr:
    case Op::DeleteAttr:
    case Op::LoadSuperAttr:
    case Op::LoadGlobal:
    case Op::StoreGlobal:
    case Op::DeleteGlobal:
    case Op::LoadName:
    case Op::StoreName:
    case Op::DeleteName:
    case Op::LoadFromDictOrGlobals:
    case Op::ImportName:
    case Op::ImportFrom:
      return item(code->co_names);
    case Op::LoadFast:
    case Op::LoadFastAndClear:
    case Op::StoreFast:
    case Op::DeleteFast:
    case Op::MakeCell:
    case Op::LoadDeref:
    case Op::StoreDeref:
    case Op::DeleteDeref:
    case Op::LoadClassDeref:
    case Op::LoadFromDictOrDeref:
      return item(code->co_localsplusnames);
    default:
      return nullptr;
  }
}

// --- jumps
// ------------------------------------------------------------------------------------------------------------

bool is_jump(Op op) {
  switch (op) {
    case Op::JumpForward:
    case Op::JumpBackward:
    case Op::PopJumpIfTrue:
    case Op::PopJumpIfFalse:
    case Op::PopJumpIfNone:
    case Op::PopJumpIfNotNone:
    case Op::JumpIfTrueOrPop:
    case Op::JumpIfFalseOrPop:
    case Op::ForIter:
    case Op::Send:
      return true;
    default:
      return false;
  }
}

bool goes_backward(uint8_t opcode) {
  switch (opcode) {
    case JUMP_BACKWARD:
    case JUMP_BACKWARD_NO_INTERRUPT:
#if PY_VERSION_HEX < 0x030C0000
    case POP_JUMP_BACKWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_NONE:
    case POP_JUMP_BACKWARD_IF_NOT_NONE:
#endif
      return true;
    default:
      return false;
  }
}

// The unit that a jump with CPython's argument `arg` goes to. An exhausted FOR_ITER skips the END_FOR behind its loop.
int32_t get_target_unit(const Instruction& instruction, int32_t arg) {
  if (goes_backward(instruction.opcode)) return instruction.next_unit - arg;
  const int32_t skipped = instruction.op != Op::ForIter ? 0 : kIs313 ? 2 : kIs312 ? 1 : 0;
  return instruction.next_unit + arg + skipped;
}

// --- the decoder
// ------------------------------------------------------------------------------------------------------

class Decoder {
 public:
  Decoder(PyCodeObject* code, const uint8_t* bytes, int32_t unit_count)
      : code_(code), bytes_(bytes), unit_count_(unit_count) {}

  // Returns why it failed, or nullptr.
  const char* decode(CodeInfo* info) {
    while (unit_ < unit_count_) {
      if (const char* problem = decode_one()) return problem;
    }
    info->unit_count = unit_count_;
    info->slot_count = code_->co_nlocalsplus + code_->co_stacksize;
    info->instruction_count = static_cast<int32_t>(instructions_.size());
    info->index_of_unit = std::make_unique<int32_t[]>(unit_count_);
    std::fill_n(info->index_of_unit.get(), unit_count_, -1);
    for (int32_t i = 0; i < info->instruction_count; ++i) {
      instructions_[i].next = i + 1;
      info->index_of_unit[instructions_[i].unit] = i;
    }
    for (int32_t i = 0; i < info->instruction_count; ++i) {
      if (target_units_[i] < 0) continue;
      instructions_[i].target = info->find_index(target_units_[i]);
      if (instructions_[i].target < 0) return "a jump goes into the middle of an instruction";
    }
    info->instructions = std::make_unique<Instruction[]>(instructions_.size());
    std::copy(instructions_.begin(), instructions_.end(), info->instructions.get());
    return nullptr;
  }

 private:
  struct Raw {
    uint8_t opcode = 0;
    int32_t arg = 0;
    int32_t op_unit = 0;
  };

  // Reads one instruction of CPython with its prefixes and caches.
  bool read(Raw* raw) {
    uint32_t arg = 0;
    for (; unit_ < unit_count_; ++unit_) {
      raw->opcode = bytes_[2 * unit_];
      arg = arg << 8 | bytes_[2 * unit_ + 1];
      if (raw->opcode != EXTENDED_ARG) break;
    }
    if (unit_ >= unit_count_) return false;
    raw->arg = static_cast<int32_t>(arg);
    raw->op_unit = unit_++;
    while (unit_ < unit_count_ && bytes_[2 * unit_] == CACHE) ++unit_;
    return true;
  }

  const char* decode_one() {
    Instruction instruction;
    instruction.unit = unit_;
    Raw raw;
    if (!read(&raw)) return "the code ends in the middle of an instruction";
#if PY_VERSION_HEX < 0x030D0000
    if (raw.opcode == KW_NAMES) {
      if (raw.arg >= PyTuple_GET_SIZE(code_->co_consts)) return "KW_NAMES names a constant that does not exist";
      instruction.object = PyTuple_GET_ITEM(code_->co_consts, raw.arg);
      if (!read(&raw)) return "the code ends behind KW_NAMES";
    }
#if PY_VERSION_HEX < 0x030C0000
    if (raw.opcode == PRECALL && !read(&raw)) return "the code ends behind PRECALL";
#endif
    const bool is_call = raw.opcode == CALL;
    if ((instruction.object != nullptr || kNeutralOps.of[raw.opcode] == Op::Call) && !is_call) {
      return "KW_NAMES or PRECALL without CALL";
    }
#endif
    instruction.opcode = raw.opcode;
    instruction.op = kNeutralOps.of[raw.opcode];
    instruction.arg = raw.arg;
    instruction.op_unit = raw.op_unit;
    instruction.next_unit = unit_;
    normalise(&instruction);
    if (instruction.object == nullptr) instruction.object = find_object(code_, instruction);
    const bool jumps = is_jump(instruction.op);
    const bool is_back_edge = jumps && goes_backward(raw.opcode) && raw.opcode != JUMP_BACKWARD_NO_INTERRUPT;
    if (is_back_edge) instruction.flags |= kInstructionBackEdge;
    target_units_.push_back(jumps ? get_target_unit(instruction, raw.arg) : -1);
    apply_table(&instruction);
    instructions_.push_back(instruction);
    return nullptr;
  }

  PyCodeObject* code_;
  const uint8_t* bytes_;
  int32_t unit_count_;
  int32_t unit_ = 0;
  std::vector<Instruction> instructions_;
  std::vector<int32_t> target_units_;
};

std::unique_ptr<CodeInfo> make_code_info(PyCodeObject* code) {
  auto info = std::make_unique<CodeInfo>();
  info->code = code;
  PyObject* bytes = PyCode_GetCode(code);
  if (bytes == nullptr) {
    PyErr_Clear();
    info->undecodable = "out of memory";
    return info;
  }
  const auto* data = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes));
  Decoder decoder(code, data, static_cast<int32_t>(PyBytes_GET_SIZE(bytes) / 2));
  info->undecodable = decoder.decode(info.get());
  Py_DECREF(bytes);
  return info;
}

void delete_code_info(void* info) { delete static_cast<CodeInfo*>(info); }

#if PY_VERSION_HEX >= 0x030C0000
const auto request_extra_index = PyUnstable_Eval_RequestCodeExtraIndex;
const auto get_extra = PyUnstable_Code_GetExtra;
const auto set_extra = PyUnstable_Code_SetExtra;
#else
const auto request_extra_index = _PyEval_RequestCodeExtraIndex;
const auto get_extra = _PyCode_GetExtra;
const auto set_extra = _PyCode_SetExtra;
#endif

}  // namespace

const int kOpCount = std::size(kKinds);

const char* get_op_name(Op op) { return kNames[static_cast<int>(op)]; }

OpKind get_op_kind(Op op) { return kKinds[static_cast<int>(op)]; }

const Instruction* CodeInfo::find_before(int32_t next_unit) const {
  int32_t index = next_unit == unit_count ? instruction_count : find_index(next_unit);
  return index > 0 ? &instructions[index - 1] : nullptr;
}

bool prepare_decoding(HostState* state) {
  state->code_extra_index = request_extra_index(delete_code_info);
  if (state->code_extra_index >= 0) return true;
  PyErr_SetString(PyExc_RuntimeError, "code objects have no room for another tool's data");
  return false;
}

CodeInfo* get_code_info(PyCodeObject* code) {
  const Py_ssize_t index = get_host_state().code_extra_index;
  auto* object = reinterpret_cast<PyObject*>(code);
  void* extra = nullptr;
  if (get_extra(object, index, &extra) == 0 && extra != nullptr) [[likely]]
    return static_cast<CodeInfo*>(extra);
  PyObject *type, *value, *traceback;  // callers may have an exception pending
  PyErr_Fetch(&type, &value, &traceback);
  CodeInfo* info = make_code_info(code).release();
  if (set_extra(object, index, info) < 0) {
    PyErr_Clear();
    delete info;
    info = nullptr;
  }
  PyErr_Restore(type, value, traceback);
  return info;
}

void set_watched(CodeInfo* info, int32_t index, bool watched) {
  Instruction& instruction = info->instructions[index];
  if (watched) {
    instruction.flags |= kInstructionWatched;
  } else {
    instruction.flags &= static_cast<uint8_t>(~kInstructionWatched);
  }
}

}  // namespace reprise::host
