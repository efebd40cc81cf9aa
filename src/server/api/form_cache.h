// Forms that requests ask for, compiled once: schemas, expressions, calls of tools. Any thread may ask; the
// forms asked for last are kept.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "constrain/guide.h"
#include "server/served_model.h"

namespace fourfold::server::api {

class FormCache {
 public:
  // kept_max: of all forms that are kept for later, but for the one asked for last. live_max: of these and of
  // those that answers wait for or are written by; half of it for one client, a key or an address.
  explicit FormCache(std::shared_ptr<const constrain::Vocabulary> vocabulary,
                     std::size_t kept_max = std::size_t{256} << 20,
                     std::size_t live_max = std::size_t{512} << 20)
      : vocabulary_(std::move(vocabulary)),
        kept_max_(kept_max),
        memory_(std::make_shared<constrain::FormBytes>(live_max)) {}

  struct Asked {
    // Tenants do not share forms: how fast one is there would tell one what another has asked for.
    std::uint64_t tenant = 0;
    std::string client = {};  // whose share it takes; empty: no client's, as large as all
    constrain::Limits limits = {};
  };
  using Compile = std::function<std::shared_ptr<const constrain::Grammar>()>;
  // `form` names it; equal names of one tenant are equal forms. Throws what compile throws, and over_capacity
  // when the forms in use leave no room for another.
  std::shared_ptr<const constrain::Masks> get(const Asked& asked, const std::string& form,
                                              const Compile& compile);
  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return forms_.size();
  }
  std::size_t live_bytes() const { return memory_->used(); }

 private:
  static constexpr std::size_t kFormsMax = 64, kSharesMax = 1024;
  struct Form {
    std::string key;
    std::shared_ptr<const constrain::Masks> masks;
    std::shared_ptr<constrain::FormBytes> share;
  };
  std::shared_ptr<const constrain::Masks> find(const std::string& key);
  std::shared_ptr<const constrain::Masks> make(const std::shared_ptr<constrain::FormBytes>& share,
                                               const Compile& compile);
  std::shared_ptr<constrain::FormBytes> share_of(const std::string& client);
  // One that is not in use, of this share or of any; false: there is none.
  bool forget_unused(const constrain::FormBytes* share);
  void forget_oldest();

  std::shared_ptr<const constrain::Vocabulary> vocabulary_;
  std::size_t kept_max_;
  std::shared_ptr<constrain::FormBytes> memory_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<constrain::FormBytes>> shares_;
  std::list<Form> forms_;  // the newest first
};

// Gives the model its forms. One whose tokens cannot write every text stays without, and answers that must
// have a form are refused.
void prepare_forms(ServedModel& model);

}  // namespace fourfold::server::api
