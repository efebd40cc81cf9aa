// A value that was read, written back as it was.
#pragma once

#include "base/json_writer.h"
#include "server/api/fields.h"
#include "text/jinja/json_value.h"

namespace fourfold::server::api {

inline void write_value(JsonWriter& json, const Json& value) {
  if (value.is_bool()) {
    json.value(value.boolean());
  } else if (value.is_integer()) {
    json.value(value.integer());
  } else if (value.wide() != nullptr) {
    json.json(value.wide()->digits);
  } else if (value.is_real()) {
    json.value(value.real());
  } else if (value.is_text()) {
    json.value(value.text());
  } else if (value.is_dict()) {
    json.begin_object();
    for (const auto& [key, item] : value.dict()->items()) write_value(json.key(key.text()), item);
    json.end_object();
  } else if (value.is_sequence()) {
    json.begin_array();
    for (const Json& item : value.sequence()->items) write_value(json, item);
    json.end_array();
  } else {
    json.value(nullptr);
  }
}

}  // namespace fourfold::server::api
