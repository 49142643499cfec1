// The linker on LLVM's ORC, without its IR layers and platform: an execution session, JITLink, one dylib.
#include <mutex>
#include <string>
#include <unordered_map>

#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h>
#include <llvm/Support/MemoryBuffer.h>

#include "toolchain/link.h"

namespace reprise::toolchain {
namespace {

namespace orc = llvm::orc;

base::Unsupported fail(std::string text) { return {base::UnsupportedCode::LinkFailed, std::move(text)}; }

class ResolverGenerator final : public orc::DefinitionGenerator {
 public:
  explicit ResolverGenerator(SymbolResolver resolver) : resolver_(std::move(resolver)) {}

  llvm::Error tryToGenerate(orc::LookupState&, orc::LookupKind, orc::JITDylib& dylib, orc::JITDylibLookupFlags,
                            const orc::SymbolLookupSet& names) override {
    orc::SymbolMap found;
    for (const auto& [name, flags] : names) {
      const llvm::StringRef text = *name;
      if (void* address = resolver_(std::string_view(text.data(), text.size()))) {
        found[name] = {orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
      }
    }
    return found.empty() ? llvm::Error::success() : dylib.define(orc::absoluteSymbols(std::move(found)));
  }

 private:
  SymbolResolver resolver_;
};

// What a Linker and all that it loaded share: the session must outlive every LoadedCode.
struct Session {
  explicit Session(std::unique_ptr<orc::ExecutorProcessControl> control)
      : session(std::move(control)),
        memory(llvm::cantFail(llvm::jitlink::InProcessMemoryManager::Create())),
        layer(session, *memory) {}
  ~Session() { llvm::consumeError(session.endSession()); }

  orc::ExecutionSession session;
  std::unique_ptr<llvm::jitlink::JITLinkMemoryManager> memory;
  orc::ObjectLinkingLayer layer;
  orc::JITDylib* dylib = nullptr;

  std::mutex lock;  // of the fields below; also held while an object is linked or removed
  std::string errors;
  std::unordered_map<base::Hash128, std::weak_ptr<LoadedCode>> codes;  // by key; never iterated
  LinkStatistics statistics;
};

class LlvmLoadedCode final : public LoadedCode {
 public:
  LlvmLoadedCode(std::shared_ptr<Session> session, const base::Hash128& key, orc::ResourceTrackerSP tracker)
      : session_(std::move(session)), key_(key), tracker_(std::move(tracker)) {}

  ~LlvmLoadedCode() override {
    const std::lock_guard guard(session_->lock);
    llvm::consumeError(tracker_->remove());
    tracker_ = nullptr;  // before the session can go
    const auto found = session_->codes.find(key_);
    if (found != session_->codes.end() && found->second.expired()) session_->codes.erase(found);
    --session_->statistics.alive;
  }

  void add_function(orc::ExecutorAddr address) { functions_.push_back(address.toPtr<KernelFunction>()); }

 private:
  std::shared_ptr<Session> session_;
  base::Hash128 key_;
  orc::ResourceTrackerSP tracker_;
};

class LlvmLinker final : public Linker {
 public:
  explicit LlvmLinker(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  std::shared_ptr<LoadedCode> find(const base::Hash128& key) override {
    const std::lock_guard guard(session_->lock);
    return find_living(key);
  }

  LinkStatistics get_statistics() override {
    const std::lock_guard guard(session_->lock);
    return session_->statistics;
  }

  base::Result<std::shared_ptr<LoadedCode>> load(const program::Code& code) override {
    if (code.kind != program::CodeKind::Object) return fail("not an object file");
    std::unique_lock guard(session_->lock);
    if (auto living = find_living(code.key)) return living;
    // An owner may just have let go of the same key on another thread: it has yet to give the symbols back.
    while (session_->codes.contains(code.key)) {
      guard.unlock();
      guard.lock();
    }
    session_->errors.clear();
    const orc::ResourceTrackerSP tracker = session_->dylib->createResourceTracker();
    const llvm::StringRef bytes(reinterpret_cast<const char*>(code.bytes.data()), code.bytes.size());
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(bytes, "kernel");
    if (llvm::Error error = session_->layer.add(tracker, std::move(buffer))) {
      return fail(llvm::toString(std::move(error)));
    }
    std::vector<orc::ExecutorAddr> addresses;
    for (const std::string& symbol : code.symbols) {
      auto found = session_->session.lookup({session_->dylib}, session_->session.intern(symbol));
      if (!found) {
        std::string text = llvm::toString(found.takeError());
        if (!session_->errors.empty()) text += "; " + session_->errors;
        llvm::consumeError(tracker->remove());
        return fail(text);
      }
      addresses.push_back(found->getAddress());
    }
    ++session_->statistics.loaded;
    ++session_->statistics.alive;
    auto loaded = std::make_shared<LlvmLoadedCode>(session_, code.key, tracker);
    for (const orc::ExecutorAddr address : addresses) loaded->add_function(address);
    session_->codes[code.key] = loaded;
    return std::shared_ptr<LoadedCode>(std::move(loaded));
  }

 private:
  std::shared_ptr<LoadedCode> find_living(const base::Hash128& key) {
    const auto found = session_->codes.find(key);
    if (found == session_->codes.end()) return nullptr;
    std::shared_ptr<LoadedCode> living = found->second.lock();
    if (living != nullptr) ++session_->statistics.found;
    return living;
  }

  std::shared_ptr<Session> session_;
};

}  // namespace

base::Result<std::unique_ptr<Linker>> make_linker(SymbolResolver resolver) {
  auto control = orc::SelfExecutorProcessControl::Create(nullptr, std::make_unique<orc::InPlaceTaskDispatcher>());
  if (!control) return fail(llvm::toString(control.takeError()));
  auto session = std::make_shared<Session>(std::move(*control));
  Session* raw = session.get();
  session->session.setErrorReporter([raw](llvm::Error error) {  // under the lock of load()
    if (!raw->errors.empty()) raw->errors += "; ";
    raw->errors += llvm::toString(std::move(error));
  });
  session->dylib = &session->session.createBareJITDylib("kernels");
  session->dylib->addGenerator(std::make_unique<ResolverGenerator>(std::move(resolver)));
  return std::unique_ptr<Linker>(std::make_unique<LlvmLinker>(std::move(session)));
}

}  // namespace reprise::toolchain
