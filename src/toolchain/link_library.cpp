// The linker of shared objects: dlopen, and the addresses of what the code calls given to it as pointers.
#include <dlfcn.h>

#include <fstream>
#include <mutex>
#include <unordered_map>

#include "toolchain/link.h"
#include "toolchain/temporary_folder_impl.h"

namespace reprise::toolchain {
namespace {

base::Unsupported fail(std::string text) { return {base::UnsupportedCode::LinkFailed, std::move(text)}; }

std::string get_dl_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown error" : text;
}

// What the linker and all that it loaded share.
struct Libraries {
  std::mutex lock;
  std::unordered_map<base::Hash128, std::weak_ptr<LoadedCode>> codes;  // by key; never iterated
  LinkStatistics statistics;
};

class Library final : public LoadedCode {
 public:
  Library(std::shared_ptr<Libraries> libraries, const base::Hash128& key, void* handle)
      : libraries_(std::move(libraries)), key_(key), handle_(handle) {}
  ~Library() override {
    {
      const std::lock_guard guard(libraries_->lock);
      const auto found = libraries_->codes.find(key_);
      if (found != libraries_->codes.end() && found->second.expired()) libraries_->codes.erase(found);
      --libraries_->statistics.alive;
    }
    dlclose(handle_);
  }

  // An empty text, or what is missing.
  std::string bind(const std::vector<std::string>& symbols, const SymbolResolver& resolver) {
    const auto* names = static_cast<const char* const*>(dlsym(handle_, "reprise_import_names"));
    auto* set_imports = reinterpret_cast<void (*)(void* const*)>(dlsym(handle_, "reprise_set_imports"));
    if (names == nullptr || set_imports == nullptr) return "no list of imports";
    std::vector<void*> values;
    std::string missing;
    for (; *names != nullptr; ++names) {
      values.push_back(resolver(*names));
      if (values.back() == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(*names);
    }
    if (!missing.empty()) return "symbols not found: " + missing;
    set_imports(values.data());
    for (const std::string& symbol : symbols) {
      functions_.push_back(reinterpret_cast<KernelFunction>(dlsym(handle_, symbol.c_str())));
      if (functions_.back() == nullptr) return "symbols not found: " + symbol;
    }
    return {};
  }

 private:
  std::shared_ptr<Libraries> libraries_;
  base::Hash128 key_;
  void* handle_;
};

class LibraryLinker final : public Linker {
 public:
  explicit LibraryLinker(SymbolResolver resolver)
      : resolver_(std::move(resolver)), libraries_(std::make_shared<Libraries>()) {}

  std::shared_ptr<LoadedCode> find(const base::Hash128& key) override {
    const std::lock_guard guard(libraries_->lock);
    const auto found = libraries_->codes.find(key);
    if (found == libraries_->codes.end()) return nullptr;
    std::shared_ptr<LoadedCode> living = found->second.lock();
    if (living != nullptr) ++libraries_->statistics.found;
    return living;
  }

  LinkStatistics get_statistics() override {
    const std::lock_guard guard(libraries_->lock);
    return libraries_->statistics;
  }

  base::Result<std::shared_ptr<LoadedCode>> load(const program::Code& code) override {
    if (code.kind != program::CodeKind::Library) return fail("not a shared object");
    if (auto living = find(code.key)) return living;
    const TemporaryFolder folder;
    const std::string path = folder.get_path() + "/" + code.key.get_text() + ".so";
    {
      std::ofstream file(path, std::ios::binary);
      file.write(reinterpret_cast<const char*>(code.bytes.data()), static_cast<std::streamsize>(code.bytes.size()));
      file.close();
      if (folder.get_path().empty() || !file) return fail("cannot write a temporary file");
    }
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return fail(get_dl_error());
    {
      const std::lock_guard guard(libraries_->lock);
      ++libraries_->statistics.loaded;
      ++libraries_->statistics.alive;
    }
    auto loaded = std::make_shared<Library>(libraries_, code.key, handle);
    if (std::string missing = loaded->bind(code.symbols, resolver_); !missing.empty()) return fail(std::move(missing));
    const std::lock_guard guard(libraries_->lock);
    libraries_->codes[code.key] = loaded;
    return std::shared_ptr<LoadedCode>(std::move(loaded));
  }

 private:
  SymbolResolver resolver_;
  std::shared_ptr<Libraries> libraries_;
};

}  // namespace

std::unique_ptr<Linker> make_library_linker(SymbolResolver resolver) {
  return std::make_unique<LibraryLinker>(std::move(resolver));
}

}  // namespace reprise::toolchain
