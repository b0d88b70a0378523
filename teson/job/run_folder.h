#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/job/config.h"
#include "teson/job/socket_folder.h"

namespace teson::job {

/// Where things lie in a run's folder. Only names; nothing is opened. Workers use this, the
/// controller RunFolder.
struct RunPaths {
  std::filesystem::path dir;

  std::filesystem::path config() const { return dir / "config.toml"; }
  std::filesystem::path metrics() const { return dir / "metrics.jsonl"; }
  std::filesystem::path events() const { return dir / "events.jsonl"; }
  std::filesystem::path ledger() const { return dir / "ledger.jsonl"; }
  std::filesystem::path summary() const { return dir / "summary.json"; }
  std::filesystem::path checkpoints() const { return dir / "checkpoints"; }
  std::filesystem::path logs() const { return dir / "logs"; }
  std::filesystem::path worker_log(int replica) const;
  std::filesystem::path lighthouse_log() const { return logs() / "lighthouse.log"; }
  std::filesystem::path faults() const { return dir / "faults"; }
  std::filesystem::path secret() const { return dir / "secret"; }
  std::filesystem::path lighthouse_record() const { return dir / "lighthouse.record"; }
  /// A text file that holds the path of the folder of the run's sockets.
  std::filesystem::path sockets_file() const { return dir / "sockets"; }
  std::filesystem::path lock() const { return dir / "lock"; }
};

struct RunFolderOptions {
  /// Move what an earlier run left into previous-N/ inside the folder and start from nothing.
  bool start_anew = false;
  std::uint64_t bytes_free_min = 16ULL << 20;
  /// 64 hexadecimal digits, of a lighthouse that others run. Empty: the folder's, made if missing.
  std::string secret;
  /// Where the folder of sockets is made. Empty: $XDG_RUNTIME_DIR if that is ours and short, else
  /// /tmp.
  std::filesystem::path socket_base;
};

/// A run's folder, held by the one process that owns the run. Holding ends with the process,
/// however it ends (flock). Move-only.
class RunFolder {
 public:
  /// Makes or takes over `dir`. Refused with `invalid`: a file, a folder that holds something else,
  /// the folder of a run that has begun with another configuration (differences named), a secret that is none; with `overloaded`: in
  /// use by a living run (its pid named); with `failed`: not writable, disk full. Afterwards
  /// config.toml holds `config`; checkpoints/, logs/, faults/, the secret and the folder of sockets
  /// exist; what dead runs left of the last is removed.
  static Result<RunFolder> open(const std::filesystem::path& dir, const Config& config,
                                const RunFolderOptions& options = {});
  RunFolder(RunFolder&&) noexcept = default;
  RunFolder& operator=(RunFolder&&) = delete;
  /// Removes the folder of sockets and lets go of the lock.
  ~RunFolder();

  const RunPaths& paths() const { return paths_; }
  /// Whether the folder already belonged to this run.
  bool existed() const { return existed_; }
  /// 64 hexadecimal digits, shared by the processes of the run.
  const std::string& secret() const { return secret_; }
  /// A folder of mode 0700 with a short path: names of up to 40 bytes in it fit a unix socket's
  /// address.
  std::filesystem::path socket_folder() const { return sockets_.folder.sockets(); }
  /// Where the run can be looked at while it goes on.
  std::filesystem::path admin_socket() const;
  /// Makes the folder of sockets again if somebody removed it; whether it was.
  Result<bool> restore_sockets() { return restore_socket_folder(sockets_.folder); }
  /// Whether paths().dir still is the folder that was opened: false once it was moved or removed.
  bool is_in_place() const;

 private:
  /// Owns a folder of sockets; removed with everything in it.
  struct SocketFolder {
    SocketFolder() = default;
    SocketFolder(SocketFolder&& other) noexcept;
    ~SocketFolder();
    OwnedSocketFolder folder;
  };
  RunFolder() = default;
  Result<void> lock_folder();
  Failure in_use() const;
  Result<void> settle(const Config& config, const RunFolderOptions& options);
  Result<void> make_sockets(const std::filesystem::path& base);

  RunPaths paths_;
  bool existed_ = false;
  std::string secret_;
  Fd lock_, dir_;  ///< the file `lock` and the folder itself, both held by flock
  SocketFolder sockets_;
};

/// Whether a run has something to go on from: a committed step or a checkpoint.
bool has_begun(const RunPaths& paths);

/// Of the run that goes on in a folder; nothing if it has ended. One that was killed may have left
/// it, with nobody listening there.
std::optional<std::filesystem::path> admin_socket(const RunPaths& paths);

/// What is read by a worker, or by a later command. `invalid` if the file is not 64 hexadecimal
/// digits or others may read it.
Result<std::string> read_secret(const std::filesystem::path& path);

}  // namespace teson::job
