#pragma once

// What the test program and its children share.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "teson/actor/actor_ref.h"
#include "teson/actor/endpoints.h"
#include "teson/actor/port.h"
#include "teson/base/error.h"

namespace teson::actor::testing {

enum class Crash : std::uint8_t { segfault, exit_3, abort, kill_self };

struct Place {
  std::uint64_t rank = 0;
  std::uint64_t size = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t replica = 0;
  std::int64_t pid = 0;
  std::int64_t group = 0;
  std::uint64_t descriptors = 0;
};

/// Where an actor was spawned, and where the message stands that it handles.
struct Seen {
  std::uint64_t rank = 0;
  std::uint64_t size = 0;
  std::string shape;
  std::uint64_t message_rank = 0;
  std::uint64_t message_size = 0;
  std::string message_shape;
  bool operator==(const Seen&) const = default;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual void heard(std::uint64_t rank, int value) = 0;
  virtual int twice(int value) = 0;
  using endpoints = Endpoints<&Listener::heard, &Listener::twice>;
};

class Worker {
 public:
  virtual ~Worker() = default;
  virtual int add(int value) = 0;
  virtual std::vector<int> history() const = 0;
  virtual std::vector<std::byte> echo(std::span<const std::byte> bytes) = 0;
  virtual Result<int> refuse(const std::string& why) = 0;
  virtual int throws() = 0;
  virtual void nap(int milliseconds) = 0;
  virtual void crash(Crash how) = 0;
  virtual Place place() = 0;
  virtual std::string greeting() = 0;
  virtual Result<void> tell(const ActorRef<Listener>& listener, int count) = 0;
  virtual Result<int> ask(const ActorRef<Listener>& listener, int value) = 0;
  virtual Seen see() = 0;
  /// The same, for the log: a cast has no reply.
  virtual void note(const std::string& what) = 0;
  virtual std::vector<std::string> notes() = 0;
  /// After milliseconds[rank]: values[rank], or an error if that is negative.
  virtual Result<double> give(const std::vector<double>& values,
                              const std::vector<int>& milliseconds) = 0;
  /// Of the message that asks.
  virtual std::uint64_t trace() = 0;
  using endpoints = Endpoints<&Worker::add, &Worker::history, &Worker::echo, &Worker::refuse,
                              &Worker::throws, &Worker::nap, &Worker::crash, &Worker::place,
                              &Worker::greeting, &Worker::tell, &Worker::ask, &Worker::see,
                              &Worker::note, &Worker::notes, &Worker::give, &Worker::trace>;
  using arguments = std::tuple<std::string>;
};

/// Runs in place wherever it is hosted or served.
class Quick {
 public:
  virtual ~Quick() = default;
  virtual int add(int value) = 0;
  virtual std::vector<int> history() = 0;
  /// The name of the thread that runs it.
  virtual std::string thread() = 0;
  virtual Result<int> ask(const ActorRef<Listener>& listener, int value) = 0;
  virtual Result<void> tell(const ActorRef<Listener>& listener, int count) = 0;
  /// So many bytes.
  virtual std::vector<std::byte> give(std::uint64_t bytes) = 0;
  virtual void throws() = 0;
  using endpoints = Endpoints<&Quick::add, &Quick::history, &Quick::thread, &Quick::ask,
                              &Quick::tell, &Quick::give, &Quick::throws>;
};

/// Answers when it pleases.
class Desk {
 public:
  virtual ~Desk() = default;
  /// Keeps the port under its key, for settle.
  virtual void ask(int key, Port<int> port) = 0;
  virtual bool settle(int key, const Result<int>& answer) = 0;
  /// Another thread answers, `milliseconds` later.
  virtual void ask_thread(int value, int milliseconds, Port<int> port) = 0;
  virtual void drop(Port<int> port) = 0;
  /// Keeps the port, or not, and fails.
  virtual void fail_with(const std::string& why, bool keep, Port<int> port) = 0;
  virtual void answer_twice(Port<int> port) = 0;
  virtual void notify(Port<void> port) = 0;
  using endpoints = Endpoints<&Desk::ask, &Desk::settle, &Desk::ask_thread, &Desk::drop,
                              &Desk::fail_with, &Desk::answer_twice, &Desk::notify>;
};

/// What the owner of a process does about its death.
enum class Reaction : std::uint8_t { replace, give_up, fail, nothing };

/// Owns processes of its own.
class Nest {
 public:
  virtual ~Nest() = default;
  /// Starts so many; their process numbers. To give up is to leave with exit code 9, saying why; to
  /// fail is to throw.
  virtual Result<std::vector<std::int64_t>> hatch(std::uint64_t count, Reaction on_death) = 0;
  virtual Result<int> add(std::uint64_t rank, int value) = 0;
  using endpoints = Endpoints<&Nest::hatch, &Nest::add>;
};

/// Speaks to actors of other processes.
class Neighbour {
 public:
  virtual ~Neighbour() = default;
  virtual Result<int> add(const ActorRef<Worker>& other, int value) = 0;
  virtual Result<void> tell(const ActorRef<Worker>& other,
                            const std::vector<std::string>& notes) = 0;
  /// Whether so many bytes come back as they were sent.
  virtual Result<bool> echo(const ActorRef<Worker>& other, std::uint64_t bytes) = 0;
  virtual Result<void> nap(const ActorRef<Worker>& other, int milliseconds) = 0;
  using endpoints = Endpoints<&Neighbour::add, &Neighbour::tell, &Neighbour::echo, &Neighbour::nap>;
};

/// Refuses to be constructed.
class Broken {
 public:
  virtual ~Broken() = default;
  virtual int anything() = 0;
  using endpoints = Endpoints<&Broken::anything>;
};

}  // namespace teson::actor::testing
