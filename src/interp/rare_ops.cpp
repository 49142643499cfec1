#include "interp/rare_ops.h"

namespace reprise::interp {

RareResult run_rare_op(RareOp& op) {
  using host::Op;
  switch (op.instruction->op) {
    case Op::LoadName:
    case Op::StoreName:
    case Op::DeleteName:
    case Op::LoadLocals:
    case Op::LoadFromDictOrGlobals:
    case Op::LoadClassDeref:
    case Op::LoadFromDictOrDeref:
    case Op::LoadBuildClass:
    case Op::SetupAnnotations:
      return run_name_op(op);
    case Op::MatchMapping:
    case Op::MatchSequence:
    case Op::MatchKeys:
    case Op::MatchClass:
      return run_match_op(op);
    case Op::GetYieldFromIter:
    case Op::Send:
    case Op::CleanupThrow:
    case Op::GetAwaitable:
    case Op::GetAiter:
    case Op::GetAnext:
    case Op::BeforeAsyncWith:
    case Op::EndAsyncFor:
    case Op::AsyncGenWrap:
      return run_await_op(op);
    case Op::RaiseCurrent:
    case Op::CheckEgMatch:
    case Op::PrepReraiseStar:
    case Op::CallIntrinsic1:
    case Op::CallIntrinsic2:
      return run_exception_op(op);
    default:
      return RareResult::Leave;
  }
}

}  // namespace reprise::interp
