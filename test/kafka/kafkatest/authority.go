package kafkatest

// The certificates of one cluster: an authority of its own, and a server's certificate for the loopback addresses. The
// authority's key is forgotten as soon as the server's certificate is signed.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

type authority struct {
	pool   *x509.CertPool
	server []byte // the broker's key and certificates, in the form that Kafka calls a PEM key store
}

func newAuthority() (*authority, error) {
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	// An hour back, for clocks that differ; a day ahead, for tests that are watched in a debugger.
	from, until := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	root := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kafkatest authority"},
		NotBefore:             from,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "localhost"},
		NotBefore:    from,
		NotAfter:     until,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, root, serverKey.Public(), rootKey)
	if err != nil {
		return nil, fmt.Errorf("make the broker's certificate: %w", err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(serverKey)
	if err != nil {
		return nil, fmt.Errorf("write the broker's key: %w", err)
	}
	parsed, err := x509.ParseCertificate(rootDER)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	a := &authority{pool: x509.NewCertPool()}
	a.pool.AddCert(parsed)
	for _, block := range []*pem.Block{
		{Type: "PRIVATE KEY", Bytes: key},
		{Type: "CERTIFICATE", Bytes: serverDER},
		{Type: "CERTIFICATE", Bytes: rootDER},
	} {
		a.server = append(a.server, pem.EncodeToMemory(block)...)
	}
	return a, nil
}

// clientConfig trusts the authority and nobody else.
func (a *authority) clientConfig() *tls.Config {
	return &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS12}
}
