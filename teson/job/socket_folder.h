#pragma once

#include <filesystem>
#include <string_view>

#include "teson/base/error.h"
#include "teson/base/fd.h"

namespace teson::job {

/// Folders for the unix sockets of one run: BASE/teson-XXXXXX, mode 0700, which the owner holds by
/// flock as long as it lives; so neither another run nor systemd-tmpfiles removes it. The sockets lie
/// in s/ in it, which whoever binds one locks for a moment. Short, since a unix socket's address
/// holds 107 bytes.
struct OwnedSocketFolder {
  std::filesystem::path path;
  Fd lock;
  std::filesystem::path sockets() const { return path / "s"; }
};

inline constexpr std::size_t kSocketBaseBytesMax = 48;

/// `wanted`, or if that is empty $XDG_RUNTIME_DIR if it is a folder of ours and short, else /tmp.
/// `invalid` if `wanted` is too long.
Result<std::filesystem::path> socket_base(const std::filesystem::path& wanted);
Result<OwnedSocketFolder> make_socket_folder(const std::filesystem::path& base);
/// Makes the folder again, under its name, if it or its s/ was removed; whether it was. Refused if
/// something else lies there: a link, or a folder of another user.
Result<bool> restore_socket_folder(OwnedSocketFolder& folder);
/// Removes the folder and what is in it.
void remove_socket_folder(const std::filesystem::path& folder);
/// Removes the folder that a dead run left, if `folder` is one: our name, our user, lock not held.
/// Else does nothing.
void remove_stale_socket_folder(const std::filesystem::path& folder);
/// All such folders of a base; looks at 1,000 entries at most.
void remove_stale_socket_folders(const std::filesystem::path& base);

}  // namespace teson::job
