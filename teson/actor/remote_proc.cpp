#include "teson/actor/remote_proc.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>

#include "teson/base/check.h"
#include "teson/base/random.h"

namespace teson::actor {

namespace {

std::string process_text(std::size_t rank, pid_t pid, const std::string& host,
                         const std::string& mesh) {
  return fmt::format("rank {} (pid {}, host '{}') of mesh '{}'", rank, pid, host, mesh);
}

std::string log_text(const std::vector<std::string>& last_lines) {
  std::string text = last_lines.empty() ? "" : "; last lines of its log:";
  for (const auto& line : last_lines)
    text += "\n  " + line;
  return text;
}

}  // namespace

std::string ProcExit::describe(const std::string& mesh) const {
  std::string text = process_text(rank, pid, host, mesh);
  if (signal != 0) {
    const char* name = ::sigabbrev_np(signal);
    text += fmt::format(" was ended by signal {} (SIG{}){}", signal, name == nullptr ? "?" : name,
                        core_dumped ? ", core dumped" : "");
  } else if (exit_code < 0) {
    text +=
        " has ended; how is not known (SIGCHLD is ignored, or something else waits for children)";
  } else {
    text += fmt::format(" has ended with exit code {}", exit_code);
  }
  if (!cause.empty()) text += "; " + cause;
  return text + log_text(last_lines);
}

namespace detail {

namespace {

/// How long the second sign of a death (end of channel, end of process) may come after the first.
constexpr Duration second_sign_wait = std::chrono::milliseconds(200);
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

RemoteProc::RemoteProc(Runtime& runtime, const ProcOptions& options, ProcPlace place,
                       Welcome welcome)
    : runtime_(runtime), options_(options), place_(place), welcome_(std::move(welcome)) {}

RemoteProc::~RemoteProc() {
  TESON_CHECK(!channel_);
}

Result<void> RemoteProc::start(Hooks hooks) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
    return fail_errno("socketpair for a child process", errno);
  Fd own(fds[0]);
  const Fd theirs(fds[1]);
  const std::string token =
      fmt::format("{:016x}{:016x}{:016x}", entropy64(), entropy64(), entropy64());

  ChildSpec spec;
  std::error_code none;
  spec.program = options_.program.empty() ? std::filesystem::read_symlink("/proc/self/exe", none)
                                          : options_.program;
  spec.working_folder = options_.working_folder;
  if (options_.arguments) spec.arguments = options_.arguments(place_);
  if (options_.environment) spec.environment = options_.environment(place_);
  if (options_.log_file) log_file_ = spec.log_file = options_.log_file(place_);
  spec.environment["TESON_PROC"] =
      fmt::format("{}:{}:{}:{}", ChildProcess::child_socket_fd, ::getpid(),
                  options_.parent_death_signal ? SIGKILL : 0, token);
  if (!log_file_.empty()) {
    const auto size = std::filesystem::file_size(log_file_, none);
    log_start_ = none ? 0 : size;
  }
  Result<ChildProcess> child;
  runtime_.starter.run([&] { child = ChildProcess::start(spec, theirs.get()); });
  if (!child)
    return fail(std::move(child).error().in(
        fmt::format("rank {} of mesh '{}'", place_.rank, welcome_.mesh)));
  {
    std::lock_guard lock(mutex_);
    child_ = std::move(*child);
    pid_ = child_.pid();
  }
  begin_on_loop(std::move(hooks), std::move(own), token);
  return {};
}

void RemoteProc::begin_on_loop(Hooks hooks, Fd socket, std::string token) {
  net::ChannelOptions options;
  const std::string body = net::encode(welcome_);
  const auto bytes = std::as_bytes(std::span(body));
  options.handshake = {.job_id = "proc",
                       .purpose = "actor",
                       .secret = std::move(token),
                       .body = {bytes.begin(), bytes.end()}};
  options.handshake_deadline = options_.attach_deadline;
  std::shared_ptr<net::Channel> channel = net::Channel::adopt(
      runtime_.loop, std::move(socket), net::HandshakeRole::acceptor, std::move(options));
  {
    std::lock_guard lock(mutex_);
    channel_ = channel;
  }
  runtime_.node.add_route(id(), channel, name(), unanswered_);
  runtime_.loop.run([&] {
    hooks_ = std::move(hooks);
    watch_ = runtime_.loop.watch(child_.pidfd());
    watch_.when_readable([this] { on_exit(); });
  });
  // release() closes the channel, which drops these.
  const auto self = shared_from_this();
  const auto take = [self](net::Message message) {
    if (is_reply(message)) self->count_reply();
    self->runtime_.node.receive(self->id(), std::move(message));
  };
  channel->start({.on_open = [self] { self->on_open(); },
                  .on_message = take,
                  .on_early_message =
                      [take](net::Message& message) {
                        if (!is_reply(message)) return false;
                        take(std::move(message));
                        return true;
                      },
                  .on_closed = [self](const Error& error) { self->on_channel_end(error); }});
}

void RemoteProc::on_open() {
  std::shared_ptr<net::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    channel = channel_;
  }
  if (!channel) return;
  const auto hello = net::decode<Hello>(channel->peer_body());
  if (!hello || hello->wire != wire_hash())
    return end_because("it was built from another version of this library");
  {
    std::lock_guard lock(mutex_);
    attached_ = true;
  }
  if (hooks_.changed) hooks_.changed();
}

void RemoteProc::on_exit() {
  const auto self = shared_from_this();
  {
    std::lock_guard lock(mutex_);
    status_ = child_.reap();
  }
  if (!status_) {
    watch_.when_readable([this] { on_exit(); });
    return;
  }
  watch_.cancel();
  // Its last messages are still being read; a grandchild that holds the socket must not delay the
  // news.
  if (channel_end_) return report();
  timer_ = runtime_.loop.after(second_sign_wait, [this] { report(); });
}

void RemoteProc::on_channel_end(const Error& error) {
  const auto self = shared_from_this();
  channel_end_ = error;
  if (status_) return report();
  if (error.kind != ErrorKind::disconnected) return end_because(error.message);
  // It may be leaving by itself, which takes its time; but nobody shall wait for its replies
  // meanwhile.
  timer_ = runtime_.loop.after(second_sign_wait, [this] {
    const Error lost{ErrorKind::disconnected,
                     name() + " has closed its connection" + log_text(last_lines())};
    {
      std::lock_guard lock(mutex_);
      lost_ = lost;
    }
    runtime_.node.pending().fail_proc(id(), lost);
    if (hooks_.changed) hooks_.changed();
    timer_ = runtime_.loop.after(options_.stop_grace, [this] {
      end_because("it had closed its connection and did not end");
    });
  });
}

void RemoteProc::end_because(const std::string& cause) {
  if (cause_.empty() && !status_) cause_ = cause;
  (void)signal(SIGKILL);
}

void RemoteProc::report() {
  const auto self = shared_from_this();
  if (exit()) return;
  timer_.cancel();
  stop_timer_.cancel();
  ProcExit exit{.rank = place_.rank,
                .incarnation = place_.incarnation,
                .pid = pid_,
                .host = runtime_.host_name,
                .exit_code = status_->code,
                .signal = status_->signal,
                .core_dumped = status_->core_dumped,
                .cause = cause_,
                .last_lines = last_lines(),
                .instant = std::chrono::steady_clock::now()};
  {
    std::lock_guard lock(mutex_);
    exit.expected = expected_;
    exit_ = exit;
  }
  const Error why = *gone();
  runtime_.node.remove_route(id(), why);
  runtime_.node.pending().fail_proc(id(), why);
  if (hooks_.ended) hooks_.ended(exit);
}

std::string RemoteProc::name() const {
  return process_text(place_.rank, pid_, runtime_.host_name, welcome_.mesh);
}

std::vector<std::string> RemoteProc::last_lines() const {
  return log_file_.empty() ? std::vector<std::string>() : tail(log_file_, log_start_);
}

bool RemoteProc::attached() const {
  std::lock_guard lock(mutex_);
  return attached_;
}

bool RemoteProc::alive() const {
  std::lock_guard lock(mutex_);
  return !exit_ && !lost_;
}

std::optional<ProcExit> RemoteProc::exit() const {
  std::lock_guard lock(mutex_);
  return exit_;
}

std::optional<Error> RemoteProc::gone() const {
  std::lock_guard lock(mutex_);
  if (exit_) return Error{ErrorKind::disconnected, exit_->describe(welcome_.mesh)};
  return lost_;
}

Result<void> RemoteProc::send(Kind kind, std::shared_ptr<const std::string> payload) {
  std::shared_ptr<net::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    // A grandchild may still hold the socket: nobody reads there. Calls are registered before they
    // are sent, so none is missed by the fail_proc that follows exit_.
    if (exit_) return fail({ErrorKind::disconnected, exit_->describe(welcome_.mesh)});
    channel = channel_;
  }
  if (!channel)
    return fail(gone().value_or(Error{ErrorKind::disconnected, "the process was not started"}));
  return channel->send(static_cast<std::uint16_t>(kind), std::move(payload));
}

net::ChannelReader RemoteProc::reader() const {
  std::lock_guard lock(mutex_);
  return channel_ ? channel_->reader() : net::ChannelReader();
}

Result<void> RemoteProc::signal(int number) {
  std::lock_guard lock(mutex_);
  return child_.signal(number);
}

void RemoteProc::stop() {
  {
    std::lock_guard lock(mutex_);
    if (exit_ || !channel_) return;
    expected_ = true;
  }
  (void)send(Kind::stop, std::make_shared<const std::string>());
  runtime_.loop.post([this, self = shared_from_this()] {
    if (status_ || exit()) return;
    stop_timer_ = runtime_.loop.after(options_.stop_grace, [this] {
      (void)signal(SIGTERM);
      stop_timer_ = runtime_.loop.after(options_.term_grace, [this] {
        end_because("it had to be killed: it neither ended when asked nor by SIGTERM");
      });
    });
  });
}

void RemoteProc::end_now() {
  {
    std::lock_guard lock(mutex_);
    expected_ = true;
  }
  (void)signal(SIGKILL);
}

void RemoteProc::release() {
  std::shared_ptr<net::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    channel.swap(channel_);
  }
  if (channel) channel->close();
  runtime_.node.remove_route(id());
  runtime_.loop.run([&] {
    channel.reset();
    watch_.cancel();
    timer_.cancel();
    stop_timer_.cancel();
    hooks_ = {};
  });
}

}  // namespace detail
}  // namespace teson::actor
