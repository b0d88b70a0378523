#pragma once

// The meshes of a System, for those who look at it; not for use outside actor/.

#include <memory>
#include <mutex>
#include <vector>

#include "teson/base/thread.h"

namespace teson::actor::detail {

class MeshState;

/// Threads: any.
class MeshList {
 public:
  void add(const std::shared_ptr<MeshState>& mesh) {
    std::lock_guard lock(mutex_);
    std::erase_if(meshes_, [](const auto& each) { return each.expired(); });
    meshes_.push_back(mesh);
  }
  /// In the order they were started.
  std::vector<std::shared_ptr<MeshState>> all() const {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<MeshState>> living;
    for (const auto& each : meshes_) {
      if (auto mesh = each.lock()) living.push_back(std::move(mesh));
    }
    return living;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::weak_ptr<MeshState>> meshes_;
};

}  // namespace teson::actor::detail
