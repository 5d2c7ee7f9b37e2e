// SPDX-License-Identifier: Apache-2.0
// Leases as objects of the remote store, by conditional PUT: for stores that honour If-None-Match
// and If-Match, as S3 does.
//
// Thread rules: a keeper belongs to one thread.
#pragma once

#include <chrono>
#include <memory>

#include "cache/lease.h"

namespace attnjit::cache {

/// Errors: kInvalid where there is no remote tier; kEnvironment where there is no libcurl.
Result<std::unique_ptr<LeaseKeeper>> open_store_leases(const RemoteOptions& remote,
                                                       std::chrono::milliseconds timeout);

}  // namespace attnjit::cache
