#pragma once

// How processes and their ends are put into words; not for use outside actor/.

#include <cstddef>
#include <string>
#include <vector>

#include <sys/types.h>

namespace teson::actor::detail {

/// "rank 1 (pid 4711, host 'node3') of mesh 'workers'"
std::string process_text(std::size_t rank, pid_t pid, const std::string& host,
                         const std::string& mesh);
/// "; last lines of its log: …", or nothing.
std::string log_text(const std::vector<std::string>& last_lines);

}  // namespace teson::actor::detail
