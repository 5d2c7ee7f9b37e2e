// SPDX-License-Identifier: Apache-2.0
// S3's signature against AWS's published example, and libcurl's numbers against its header.
#include <gtest/gtest.h>

#if __has_include(<curl/curl.h>)
#include <curl/curl.h>
#endif

#include "net/curl.h"
#include "net/sigv4.h"

namespace attnjit::net {
namespace {

// "Example: GET Object" of AWS's "Signature Calculations for the Authorization Header".
TEST(SignV4Test, GivesThePublishedSignature) {
  const S3Credentials credentials{"AKIAIOSFODNN7EXAMPLE",
                                  "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", "us-east-1"};
  const auto headers =
      sign_v4(credentials,
              {"GET", "examplebucket.s3.amazonaws.com", "/test.txt", "", {{"range", "bytes=0-9"}}},
              1369353600);  // 2013-05-24 00:00:00
  EXPECT_EQ(headers.back(),
            "Authorization: AWS4-HMAC-SHA256 "
            "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

#if __has_include(<curl/curl.h>)
// What curl.cpp believes of libcurl's ABI, which is all that it takes from its header.
static_assert(curl::kOk == CURLE_OK);
static_assert(curl::kWriteData == CURLOPT_WRITEDATA && curl::kUrl == CURLOPT_URL);
static_assert(curl::kReadData == CURLOPT_READDATA && curl::kErrorBuffer == CURLOPT_ERRORBUFFER);
static_assert(curl::kWriteFunction == CURLOPT_WRITEFUNCTION);
static_assert(curl::kReadFunction == CURLOPT_READFUNCTION);
static_assert(curl::kHttpHeader == CURLOPT_HTTPHEADER && curl::kHeaderData == CURLOPT_HEADERDATA);
static_assert(curl::kNoBody == CURLOPT_NOBODY);
static_assert(curl::kUpload == CURLOPT_UPLOAD && curl::kCaInfo == CURLOPT_CAINFO);
static_assert(curl::kHeaderFunction == CURLOPT_HEADERFUNCTION);
static_assert(curl::kNoSignal == CURLOPT_NOSIGNAL);
static_assert(curl::kInFileSize == CURLOPT_INFILESIZE_LARGE);
static_assert(curl::kTimeoutMs == CURLOPT_TIMEOUT_MS);
static_assert(curl::kConnectTimeoutMs == CURLOPT_CONNECTTIMEOUT_MS);
static_assert(curl::kErrorSize == CURL_ERROR_SIZE);
static_assert(curl::kInfoResponseCode == CURLINFO_RESPONSE_CODE);
static_assert(curl::kMessageDone == CURLMSG_DONE && curl::kGlobalDefault == CURL_GLOBAL_DEFAULT);
static_assert(curl::kProtocolHttp == CURLPROTO_HTTP && curl::kProtocolHttps == CURLPROTO_HTTPS);
static_assert(curl::kTimedOut == CURLE_OPERATION_TIMEDOUT);
static_assert(sizeof(curl::Message) == sizeof(CURLMsg) &&
              offsetof(curl::Message, kind) == offsetof(CURLMsg, msg) &&
              offsetof(curl::Message, data) == offsetof(CURLMsg, data));
static_assert(sizeof(curl_off_t) == sizeof(std::int64_t));
#endif

}  // namespace
}  // namespace attnjit::net
