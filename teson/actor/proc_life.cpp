#include "teson/actor/proc_life.h"

#include <algorithm>
#include <fstream>
#include <utility>

namespace teson::actor::detail {

namespace {

constexpr std::size_t last_lines_max = 10;
constexpr std::size_t last_bytes_max = 4096;

/// The last lines that were written to a log since `from`.
std::vector<std::string> tail(const std::filesystem::path& path, std::uintmax_t from) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const auto end = static_cast<std::uintmax_t>(file.tellg());
  if (end <= from) return {};
  const auto begin = std::max(from, end > last_bytes_max ? end - last_bytes_max : 0);
  std::string text(static_cast<std::size_t>(end - begin), '\0');
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  std::vector<std::string> lines;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t stop = std::min(text.find('\n', at), text.size());
    if (stop > at) lines.push_back(text.substr(at, stop - at));
    at = stop + 1;
  }
  if (lines.size() > last_lines_max) lines.erase(lines.begin(), lines.end() - last_lines_max);
  return lines;
}

}  // namespace

namespace {

class SystemLauncher final : public Launcher {
 public:
  Result<std::unique_ptr<ProcLife>> start(net::Loop& loop, std::string host, const ChildSpec& spec,
                                          int socket) override {
    return ChildLife::start(loop, std::move(host), spec, socket);
  }
};

}  // namespace

std::shared_ptr<Launcher> system_launcher() {
  return std::make_shared<SystemLauncher>();
}

Result<std::unique_ptr<ChildLife>> ChildLife::start(net::Loop& loop, std::string host,
                                                    const ChildSpec& spec, int socket) {
  auto life = std::unique_ptr<ChildLife>(new ChildLife(loop, std::move(host), spec.log_file));
  TESON_TRY(life->child_, ChildProcess::start(spec, socket));
  life->pid_ = life->child_.pid();
  return life;
}

ChildLife::ChildLife(net::Loop& loop, std::string host, std::filesystem::path log_file)
    : loop_(loop), host_(std::move(host)), log_file_(std::move(log_file)) {
  std::error_code none;
  const auto size = std::filesystem::file_size(log_file_, none);
  log_start_ = none ? 0 : size;
}

Result<void> ChildLife::signal(int number) {
  std::lock_guard lock(mutex_);
  return child_.signal(number);
}

std::vector<std::string> ChildLife::last_lines() const {
  return log_file_.empty() ? std::vector<std::string>() : tail(log_file_, log_start_);
}

void ChildLife::watch(Ended ended) {
  ended_ = std::move(ended);
  watch_ = loop_.watch(child_.pidfd());
  watch_.when_readable([this] { look(); });
}

void ChildLife::unwatch() {
  watch_.cancel();
  ended_ = {};
}

void ChildLife::look() {
  std::optional<ExitStatus> status;
  {
    std::lock_guard lock(mutex_);
    status = child_.reap();
  }
  if (!status) return watch_.when_readable([this] { look(); });
  watch_.cancel();
  if (const auto ended = std::exchange(ended_, {})) ended(*status, "");
}

}  // namespace teson::actor::detail
