#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include <fmt/format.h>
#include <sys/stat.h>

#include "teson/data/builtin.h"
#include "teson/data/corpus.h"

namespace teson::data {
namespace fs = std::filesystem;
namespace {

constexpr std::array<std::string_view, 5> kExtensions = {".txt", ".text", ".md", ".jsonl",
                                                         ".ndjson"};

bool has_text_extension(const fs::path& path) {
  const std::string extension = path.extension().string();
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

Result<struct stat> stat_of(const fs::path& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) return info;
  if (errno == ENOENT || errno == ENOTDIR) {
    return fail(ErrorKind::invalid, fmt::format("corpus '{}' does not exist", path.string()));
  }
  return fail_errno(fmt::format("corpus '{}'", path.string()), errno);
}

Source source_of(const fs::path& path, const struct stat& info) {
  return {.path = path.string(),
          .bytes = static_cast<std::uint64_t>(info.st_size),
          .modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

Result<std::vector<Source>> list_folder(const fs::path& folder, SkippedFiles& skipped) {
  std::vector<fs::path> paths;
  std::error_code code;
  fs::recursive_directory_iterator at(folder, code);
  for (; !code && at != fs::recursive_directory_iterator(); at.increment(code)) {
    std::error_code kind_error;
    if (is_hidden(at->path())) {
      at.disable_recursion_pending();
    } else if (!at->is_directory(kind_error)) {
      if (has_text_extension(at->path())) {
        paths.push_back(at->path());
      } else if (skipped.count++ == 0) {
        skipped.example = at->path().string();
      }
    }
  }
  if (code)
    return fail_errno(fmt::format("list corpus folder '{}'", folder.string()), code.value());
  if (paths.empty()) {
    return fail(ErrorKind::invalid,
                fmt::format("corpus folder '{}' holds no text: expected files ending in {}",
                            folder.string(), fmt::join(kExtensions, ", ")));
  }
  std::sort(paths.begin(), paths.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  std::vector<Source> sources;
  for (const fs::path& path : paths) {
    TESON_TRY(const struct stat info, stat_of(path));
    if (S_ISREG(info.st_mode)) sources.push_back(source_of(path, info));
  }
  return sources;
}

Result<std::vector<Source>> list_one(const std::string& name, SkippedFiles& skipped) {
  if (name == kBuiltinTiny) return std::vector<Source>{builtin_source()};
  if (name.starts_with("builtin:")) {
    return fail(ErrorKind::invalid,
                fmt::format("no corpus '{}': the only one built in is '{}'", name, kBuiltinTiny));
  }
  std::error_code code;
  const fs::path path = fs::absolute(name, code).lexically_normal();
  if (name.empty() || code)
    return fail(ErrorKind::invalid, "a corpus without a name: expected a file or a folder");
  TESON_TRY(const struct stat info, stat_of(path));
  if (S_ISDIR(info.st_mode)) return list_folder(path, skipped);
  if (S_ISREG(info.st_mode)) return std::vector<Source>{source_of(path, info)};
  return fail(ErrorKind::invalid,
              fmt::format("corpus '{}' is neither a file nor a folder", path.string()));
}

}  // namespace

Result<std::vector<Source>> list_sources(const CorpusOptions& options, SkippedFiles* skipped) {
  if (options.sources.empty()) {
    return fail(ErrorKind::invalid,
                "no corpus: expected at least one file or folder, or 'builtin:tiny'");
  }
  std::vector<Source> sources;
  SkippedFiles passed_over;
  std::set<std::string> seen;
  for (const std::string& name : options.sources) {
    TESON_TRY(auto found, list_one(name, passed_over));
    for (Source& source : found) {
      if (seen.insert(source.path).second) sources.push_back(std::move(source));
    }
  }
  if (skipped != nullptr) *skipped = std::move(passed_over);
  return sources;
}

}  // namespace teson::data
