#include "apps/teson/commands.h"

#include <cerrno>
#include <cstdio>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "teson/base/file.h"

namespace teson::apps {
namespace {

constexpr std::size_t kConfigBytesMax = 1 << 20;

}  // namespace

int report(const Error& error) {
  tell(fmt::format("teson: {}\n", error.message));
  return error.kind == ErrorKind::invalid ? kUserError : kFailed;
}

void tell(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

Result<job::Config> load_job(const std::string& file, const std::vector<std::string>& overrides) {
  // A pipe is welcome here alone: whoever started us writes it.
  std::error_code code;
  const bool piped = std::filesystem::is_fifo(file, code);
  auto config = piped ? read_pipe(file, kConfigBytesMax).and_then([&](const std::string& text) {
    return job::parse_config(text, file, overrides);
  })
                      : job::load_config(file, overrides);
  if (!config) return fail(ErrorKind::invalid, config.error().message);
  return config;
}

void add_overrides(CLI::App& command, std::vector<std::string>& overrides) {
  command.add_option("--set", overrides, "key=value, over the file; repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

std::string memory_limit_advice() {
  struct rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format(
      ". A process may use {} MB of addresses here, which may be too little: ulimit "
      "-v unlimited",
      limit.rlim_cur >> 20);
}

std::filesystem::path program_folder() {
  std::error_code code;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", code);
  return code ? std::filesystem::path(".") : self.parent_path();
}

Error exec_worker(const std::vector<std::string>& arguments) {
  const std::string program = (program_folder() / "teson-worker").string();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const auto& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(program.c_str(), argv.data());
  return fail_errno(fmt::format("start '{}' (it lies beside teson where both were built)", program),
                    errno)
      .value();
}

}  // namespace teson::apps
