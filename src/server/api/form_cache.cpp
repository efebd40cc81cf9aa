#include "server/api/form_cache.h"

#include "base/error.h"

namespace fourfold::server::api {

std::shared_ptr<const constrain::Masks> FormCache::get(const Asked& asked, const std::string& form,
                                                       const Compile& compile) {
  const std::string key = fourfold::format("{}:{}", asked.tenant, form);
  if (auto known = find(key)) return known;
  // Compiling takes too long to do it under the lock; two requests that ask at once both do it.
  const std::shared_ptr<constrain::FormBytes> share = share_of(asked.client);
  auto masks = make(share, compile);
  masks->warm_up();
  const std::lock_guard lock(mutex_);
  forms_.push_front({key, masks, share});
  forget_oldest();
  return masks;
}

std::shared_ptr<const constrain::Masks> FormCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  for (auto at = forms_.begin(); at != forms_.end(); ++at) {
    if (at->key != key) continue;
    forms_.splice(forms_.begin(), forms_, at);
    forget_oldest();
    return forms_.front().masks;
  }
  return nullptr;
}

// Forms that are only kept make room for one that is asked for now: the client's own, and those of others
// only where it is the room of all that is short.
std::shared_ptr<const constrain::Masks> FormCache::make(const std::shared_ptr<constrain::FormBytes>& share,
                                                        const Compile& compile) {
  const std::shared_ptr<const constrain::Grammar> grammar = compile();
  while (true) {
    try {
      return std::make_shared<const constrain::Masks>(vocabulary_, grammar, share);
    } catch (const Error& error) {
      if (error.code() != Code::over_capacity) throw;
      const bool own_is_short = share->max() - share->used() <= memory_->max() - memory_->used();
      if (!forget_unused(share.get()) && (own_is_short || !forget_unused(nullptr))) throw;
    }
  }
}

std::shared_ptr<constrain::FormBytes> FormCache::share_of(const std::string& client) {
  if (client.empty()) return memory_;
  const std::lock_guard lock(mutex_);
  if (shares_.size() >= kSharesMax)
    std::erase_if(shares_, [](const auto& share) { return share.second.use_count() == 1; });
  auto& share = shares_[client];
  if (!share) share = std::make_shared<constrain::FormBytes>(memory_->max() / 2, memory_);
  return share;
}

bool FormCache::forget_unused(const constrain::FormBytes* share) {
  const std::lock_guard lock(mutex_);
  for (auto at = forms_.end(); at != forms_.begin();)
    if ((--at)->masks.use_count() == 1 && (share == nullptr || at->share.get() == share)) {
      forms_.erase(at);
      return true;
    }
  return false;
}

// Forms grow while answers are written by them, so all are counted anew.
void FormCache::forget_oldest() {
  std::size_t bytes = 0;
  for (const Form& form : forms_) bytes += form.key.size() + form.masks->bytes();
  while (forms_.size() > kFormsMax || (forms_.size() > 1 && bytes > kept_max_)) {
    bytes -= forms_.back().key.size() + forms_.back().masks->bytes();
    forms_.pop_back();
  }
}

void prepare_forms(ServedModel& model) {
  try {
    model.forms = std::make_shared<FormCache>(
        std::make_shared<const constrain::Vocabulary>(model.tokenizer, model.stop_ids, model.token_limit));
  } catch (const Error& error) {
    if (error.code() != Code::unsupported_model) throw;
    model.forms = nullptr;
  }
}

}  // namespace fourfold::server::api
