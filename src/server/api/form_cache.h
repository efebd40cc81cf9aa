// Forms that requests ask for, compiled once: schemas, expressions, calls of tools. Any thread may ask; the
// forms asked for last are kept.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "constrain/guide.h"
#include "server/served_model.h"

namespace fourfold::server::api {

class FormCache {
 public:
  // bytes_max: of all forms that are kept, together, but for the one asked for last.
  explicit FormCache(std::shared_ptr<const constrain::Vocabulary> vocabulary,
                     std::size_t bytes_max = std::size_t{256} << 20)
      : vocabulary_(std::move(vocabulary)), bytes_max_(bytes_max) {}

  using Compile = std::function<std::shared_ptr<const constrain::Grammar>()>;
  // `key` names the form; equal keys are equal forms. Throws what compile throws.
  std::shared_ptr<const constrain::Masks> get(const std::string& key, const Compile& compile);
  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return forms_.size();
  }

 private:
  static constexpr std::size_t kFormsMax = 32;
  void forget_oldest();

  std::shared_ptr<const constrain::Vocabulary> vocabulary_;
  std::size_t bytes_max_;
  mutable std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const constrain::Masks>>> forms_;  // the newest first
};

// Gives the model its forms. One whose tokens cannot write every text stays without, and answers that must
// have a form are refused.
void prepare_forms(ServedModel& model);

}  // namespace fourfold::server::api
